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

{{/* Makes the token and the certificate once for a release; an upgrade keeps them. All templates of one rendering get the same values. Without
access to the cluster (`helm template`) they are new each time; set your own Secrets then. */}}
{{- define "torc.generate" -}}
{{- if not (hasKey .Values "generated") -}}
{{- $made := dict -}}
{{- $service := include "torc.fullname" . -}}
{{- $token := (lookup "v1" "Secret" .Release.Namespace (include "torc.tokenSecret" .)).data | default dict -}}
{{- range $key := list "token" "metrics" -}}
{{- $_ := set $made $key (get $token $key | default (empty $.Values.token.secretName | ternary (randAlphaNum 48 | b64enc) "")) -}}
{{- end -}}
{{- if ne .Values.tls.mode "off" -}}
{{- $tls := (lookup "v1" "Secret" .Release.Namespace (include "torc.tlsSecret" .)).data | default dict -}}
{{- $ca := get $tls .Values.tls.caKey -}}
{{- if hasKey $tls "tls.key" -}}
{{- $_ := set $made "tls" (dict "ca.crt" $ca "tls.crt" (get $tls "tls.crt") "tls.key" (get $tls "tls.key")) -}}
{{- else if eq .Values.tls.mode "generated" -}}
{{- $names := list $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) (printf "%s.%s.svc.cluster.local" $service .Release.Namespace) "localhost" -}}
{{- with .Values.service.advertiseUrl -}}
{{- $names = append $names (regexReplaceAll ":[0-9]+$" (urlParse .).host "") -}}
{{- end -}}
{{- $authority := genCA (printf "%s-ca" $service) 3650 -}}
{{- $certificate := genSignedCert $service (list "127.0.0.1") $names 3650 $authority -}}
{{- $_ := set $made "tls" (dict "ca.crt" (b64enc $authority.Cert) "tls.crt" (b64enc $certificate.Cert) "tls.key" (b64enc $certificate.Key)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values "generated" $made -}}
{{- end -}}
{{- end -}}

{{/* A checksum of the Secrets, so that a changed one restarts the Pods. */}}
{{- define "torc.checksum" -}}
{{- include "torc.generate" . -}}
{{- toJson .Values.generated | sha256sum -}}
{{- end -}}

{{/* The authority's certificate in base64; empty if it is not known yet. */}}
{{- define "torc.authority" -}}
{{- include "torc.generate" . -}}
{{- get (get .Values.generated "tls" | default dict) "ca.crt" -}}
{{- end -}}

{{/* Whether service accounts authenticate by their tokens, which needs a cluster-wide right. */}}
{{- define "torc.tokenReview" -}}
{{- if and .Values.tokenReview.enabled .Values.rbac.clusterWide }}true{{ end -}}
{{- end -}}

{{- define "torc.poolReplicas" -}}
{{- if .autoscale -}}
{{- .autoscale.max -}}
{{- else -}}
{{- hasKey . "replicas" | ternary .replicas 1 -}}
{{- end -}}
{{- end -}}

{{- define "torc.poolName" -}}
{{- printf "%s-%s" (include "torc.fullname" .root) .pool.name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* The security context of every container of this chart. */}}
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
