{{- define "torc.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "torc.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "torc.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "torc.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "torc.selector" -}}
app.kubernetes.io/name: {{ include "torc.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "torc.labels" -}}
{{ include "torc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "torc.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "torc.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "torc.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "torc.tokenSecret" -}}
{{- default (printf "%s-token" (include "torc.fullname" .)) .Values.token.secretName -}}
{{- end -}}

{{- define "torc.tlsSecret" -}}
{{- if eq .Values.tls.mode "secret" -}}
{{- required "tls.secretName is needed when tls.mode is secret" .Values.tls.secretName -}}
{{- else -}}
{{- printf "%s-tls" (include "torc.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "torc.scheme" -}}
{{- if eq .Values.tls.mode "off" }}http{{ else }}https{{ end -}}
{{- end -}}

{{- define "torc.url" -}}
{{ include "torc.scheme" . }}://{{ include "torc.fullname" . }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}
{{- end -}}

{{- define "torc.poolName" -}}
{{- printf "%s-%s" (include "torc.fullname" .root) .pool.name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* What every container of ours may do: nothing beyond its own files. */}}
{{- define "torc.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "torc.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}
