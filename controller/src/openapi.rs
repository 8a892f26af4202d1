//! The API's description, made from the types that it really uses.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use torc_api::allocation;
use torc_api::api;
use torc_api::data;
use torc_api::explain;
use torc_api::logs;
use torc_api::recovery;
use torc_api::remote;
use torc_api::slurm_stats;
use torc_api::token;
use torc_api::wire;

/// The OpenAPI document.
pub fn document() -> Value {
    let mut types = SchemaSettings::openapi3().into_generator();
    let mut paths = Map::new();
    for operation in operations(&mut types) {
        let method = operation.method;
        let methods = paths.entry(operation.path).or_insert_with(|| json!({}));
        methods[method] = operation.describe();
    }
    let schemas = types.take_definitions(true);
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Torc",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Workflows as declarative documents. Every route but those about health needs a bearer token.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }],
    })
}

struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    query: &'static [(&'static str, &'static str)],
    request: Option<Value>,
    response: Option<Value>,
    error: Value,
}

impl Operation {
    fn describe(self) -> Value {
        let in_path = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let mut parameters: Vec<Value> = in_path
            .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
            .collect();
        parameters.extend(self.query.iter().map(|(name, description)| {
            json!({ "name": name, "in": "query", "description": description, "schema": { "type": "string" } })
        }));
        let success = match self.response {
            Some(schema) => json!({ "200": { "description": "done", "content": content(schema) } }),
            None => json!({ "204": { "description": "done" } }),
        };
        let mut operation = json!({ "summary": self.summary, "parameters": parameters, "responses": success });
        operation["responses"]["default"] = json!({ "description": "refused", "content": content(self.error) });
        if let Some(schema) = self.request {
            operation["requestBody"] = json!({ "required": true, "content": content(schema) });
        }
        operation
    }
}

fn content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

const NAMESPACE: (&str, &str) = ("namespace", "`default` when absent");
const LIMIT: (&str, &str) = ("limit", "the most items of one page");
const CURSOR: (&str, &str) = ("cursor", "`next` of the page before");

fn operations(types: &mut SchemaGenerator) -> Vec<Operation> {
    let mut list = Vec::new();
    workflow_operations(types, &mut list);
    job_operations(types, &mut list);
    log_operations(types, &mut list);
    data_operations(types, &mut list);
    remote_operations(types, &mut list);
    recovery_operations(types, &mut list);
    runner_operations(types, &mut list);
    slurm_operations(types, &mut list);
    system_operations(types, &mut list);
    list
}

/// What an operation takes and gives, as types.
struct Types<'a>(&'a mut SchemaGenerator);

impl Types<'_> {
    fn of<T: JsonSchema>(&mut self) -> Option<Value> {
        Some(self.0.subschema_for::<T>().to_value())
    }

    fn operation(&mut self, method: &'static str, path: &'static str, summary: &'static str) -> Operation {
        let error = self.0.subschema_for::<api::ErrorBody>().to_value();
        Operation { method, path, summary, query: &[], request: None, response: None, error }
    }
}

fn workflow_operations(types: &mut SchemaGenerator, list: &mut Vec<Operation>) {
    let mut types = Types(types);
    const ONE: &[(&str, &str)] = &[NAMESPACE];
    list.push(Operation {
        request: types.of::<api::ApplyRequest>(),
        response: types.of::<api::ApplyResponse>(),
        ..types.operation("post", "/v1/workflows", "Make the world match a document, or say what would change")
    });
    list.push(Operation {
        query: &[NAMESPACE, LIMIT, CURSOR],
        response: types.of::<api::Page<api::Workflow>>(),
        ..types.operation("get", "/v1/workflows", "List workflows, without their documents")
    });
    list.push(Operation {
        query: ONE,
        response: types.of::<api::Workflow>(),
        ..types.operation("get", "/v1/workflows/{workflow}", "One workflow, by name or number, with its document")
    });
    list.push(Operation {
        query: &[NAMESPACE, ("force", "also where its allocations could not be cancelled")],
        ..types.operation("delete", "/v1/workflows/{workflow}", "Forget a workflow and everything of it")
    });
    for (path, summary) in [
        ("/v1/workflows/{workflow}/cancel", "Start nothing more and end what runs"),
        ("/v1/workflows/{workflow}/suspend", "Start nothing more; what runs goes on"),
        ("/v1/workflows/{workflow}/resume", "Start jobs again"),
    ] {
        let response = types.of::<api::Workflow>();
        list.push(Operation { query: ONE, response, ..types.operation("post", path, summary) });
    }
    list.push(Operation {
        query: ONE,
        request: types.of::<api::RetryRequest>(),
        response: types.of::<api::Affected>(),
        ..types.operation("post", "/v1/workflows/{workflow}/retry", "Run jobs again, and what depends on them")
    });
}

fn remote_operations(types: &mut SchemaGenerator, list: &mut Vec<Operation>) {
    let mut types = Types(types);
    let path = "/v1/workflows/{workflow}/remote-workers";
    list.push(Operation {
        query: &[NAMESPACE],
        response: types.of::<api::Page<remote::RemoteWorker>>(),
        ..types.operation("get", path, "Machines reached over SSH that run the workflow's jobs")
    });
    list.push(Operation {
        query: &[NAMESPACE],
        request: types.of::<remote::RemoteWorkersRequest>(),
        response: types.of::<api::Page<remote::RemoteWorker>>(),
        ..types.operation("post", path, "Add such machines; the answer lists all of them")
    });
    list.push(Operation {
        query: &[NAMESPACE],
        ..types.operation("delete", "/v1/workflows/{workflow}/remote-workers/{worker}", "Forget such a machine")
    });
}

fn job_operations(types: &mut SchemaGenerator, list: &mut Vec<Operation>) {
    let mut types = Types(types);
    list.push(Operation {
        query: &[
            NAMESPACE,
            ("status", "states, separated by commas"),
            ("name", "the exact name"),
            ("contains", "a part of the name"),
            LIMIT,
            CURSOR,
        ],
        response: types.of::<api::Page<api::Job>>(),
        ..types.operation("get", "/v1/workflows/{workflow}/jobs", "Jobs of a workflow")
    });
    list.push(Operation {
        query: &[NAMESPACE],
        response: types.of::<api::Job>(),
        ..types.operation(
            "get",
            "/v1/workflows/{workflow}/jobs/{job}",
            "One job, by name or number, with its dependencies",
        )
    });
    list.push(Operation {
        query: &[NAMESPACE],
        response: types.of::<explain::JobExplanation>(),
        ..types.operation("get", "/v1/workflows/{workflow}/jobs/{job}/explain", "Why a job is where it is")
    });
    list.push(Operation {
        query: &[NAMESPACE],
        response: types.of::<explain::WorkflowExplanation>(),
        ..types.operation("get", "/v1/workflows/{workflow}/explain", "Why a workflow's jobs are where they are")
    });
    list.push(Operation {
        query: &[
            NAMESPACE,
            ("job", "a job, by name or number"),
            ("run", "a run"),
            ("status", "states, separated by commas"),
            ("failed", "`true` for attempts that did not succeed"),
            ("returnCode", "an exit code"),
            ("latest", "`true` for the last attempt of each job"),
            LIMIT,
            CURSOR,
        ],
        response: types.of::<api::Page<api::JobResult>>(),
        ..types.operation("get", "/v1/workflows/{workflow}/results", "Attempts that ended")
    });
    list.push(Operation {
        query: &[NAMESPACE],
        request: types.of::<wire::ReplayRequest>(),
        response: types.of::<wire::ReplayResponse>(),
        ..types.operation(
            "post",
            "/v1/workflows/{workflow}/runs/{run}/results",
            "Results that runners wrote down while the server was away; each counts once",
        )
    });
    list.push(Operation {
        query: &[
            NAMESPACE,
            ("workflow_id", "a workflow, by name or number"),
            ("job_id", "a job, by number, or by name with its workflow"),
            ("run_id", "a run"),
            ("attempt_id", "an attempt"),
            LIMIT,
            CURSOR,
        ],
        response: types.of::<api::Page<slurm_stats::SlurmStats>>(),
        ..types.operation("get", "/v1/slurm_stats", "What Slurm's accounting said of steps")
    });
    list.push(Operation {
        request: types.of::<slurm_stats::SlurmStatsRequest>(),
        ..types.operation(
            "post",
            "/v1/slurm_stats",
            "Write down what Slurm's accounting said of steps, one or several; what was said before is forgotten",
        )
    });
    list.push(Operation {
        query: &[NAMESPACE],
        response: types.of::<api::Page<api::WorkflowAction>>(),
        ..types.operation("get", "/v1/workflows/{workflow}/actions", "What the workflow's progress sets off")
    });
    list.push(Operation {
        query: &[NAMESPACE, ("workflow", "a workflow"), ("after", "a sequence number"), LIMIT],
        response: types.of::<api::Page<api::Event>>(),
        ..types.operation("get", "/v1/events", "What happened, oldest first")
    });
    list.push(Operation {
        query: &[NAMESPACE, ("workflow", "a workflow"), ("after", "a sequence number; `Last-Event-ID` wins")],
        response: types.of::<api::Event>(),
        ..types.operation(
            "get",
            "/v1/watch",
            "Server-sent events: `event` as things happen, `status` when it has changed",
        )
    });
}

fn log_operations(types: &mut SchemaGenerator, list: &mut Vec<Operation>) {
    let mut types = Types(types);
    list.push(Operation {
        request: types.of::<logs::LogExchange>(),
        response: types.of::<logs::LogWishes>(),
        ..types.operation("post", "/v1/logs", "A runner brings pieces of logs, and waits until others are wanted")
    });
    list.push(Operation {
        query: &[
            NAMESPACE,
            ("path", "the file, as the result or the runner names it"),
            ("offset", "where the piece begins"),
            ("lines", "only the last lines"),
        ],
        response: types.of::<logs::LogPiece>(),
        ..types.operation(
            "get",
            "/v1/workflows/{workflow}/jobs/{job}/log",
            "A piece of a log that is on the disk of a runner's Pod",
        )
    });
}

fn data_operations(types: &mut SchemaGenerator, list: &mut Vec<Operation>) {
    let mut types = Types(types);
    const ONE: &[(&str, &str)] = &[NAMESPACE];
    const DATA: &str = "/v1/workflows/{workflow}/user-data/{name}";
    list.push(Operation {
        query: ONE,
        response: types.of::<api::Page<data::File>>(),
        ..types.operation("get", "/v1/workflows/{workflow}/files", "Files of a workflow, as they were last seen")
    });
    list.push(Operation {
        query: &[NAMESPACE, LIMIT, CURSOR],
        response: types.of::<api::Page<data::FileUse>>(),
        ..types.operation(
            "get",
            "/v1/workflows/{workflow}/file-uses",
            "What jobs do with files, and what their latest success saw of them; a page is one of jobs",
        )
    });
    list.push(Operation {
        query: ONE,
        response: types.of::<api::Page<data::UserData>>(),
        ..types.operation("get", "/v1/workflows/{workflow}/user-data", "Data of a workflow")
    });
    list.push(Operation {
        query: ONE,
        response: types.of::<data::UserData>(),
        ..types.operation("get", DATA, "One value")
    });
    list.push(Operation {
        query: ONE,
        request: types.of::<data::WriteUserData>(),
        response: types.of::<data::UserDataWritten>(),
        ..types.operation("put", DATA, "Write a value")
    });
    list.push(Operation {
        query: ONE,
        response: types.of::<data::UserDataWritten>(),
        ..types.operation("delete", DATA, "Take back what was written; the document's value is left")
    });
    list.push(Operation {
        query: ONE,
        response: types.of::<data::Staleness>(),
        ..types.operation(
            "get",
            "/v1/workflows/{workflow}/staleness",
            "Data that has changed under completed jobs, and data that is missing",
        )
    });
    list.push(Operation {
        query: ONE,
        request: types.of::<data::SpawnRequest>(),
        response: types.of::<data::SpawnResponse>(),
        ..types.operation(
            "post",
            "/v1/workflows/{workflow}/jobs/{job}/spawn",
            "A running job adds jobs to its workflow",
        )
    });
    list.push(Operation {
        query: ONE,
        response: types.of::<std::collections::BTreeMap<String, Value>>(),
        ..types.operation("get", "/v1/workflows/{workflow}/ro-crate", "Provenance as an RO-Crate, in JSON-LD")
    });
}

fn recovery_operations(types: &mut SchemaGenerator, list: &mut Vec<Operation>) {
    let mut types = Types(types);
    const ONE: &[(&str, &str)] = &[NAMESPACE];
    list.push(Operation {
        query: ONE,
        request: types.of::<recovery::SyncStatusRequest>(),
        response: types.of::<allocation::OrphanReport>(),
        ..types.operation(
            "post",
            "/v1/workflows/{workflow}/sync-status",
            "Find what was lost with allocations and runners",
        )
    });
    list.push(Operation {
        query: ONE,
        request: types.of::<recovery::RecoverRequest>(),
        response: types.of::<recovery::RecoverReport>(),
        ..types.operation("post", "/v1/workflows/{workflow}/recover", "Try failed jobs again, each with what it lacked")
    });
    list.push(Operation {
        query: ONE,
        request: types.of::<recovery::RegenerateRequest>(),
        response: types.of::<recovery::RegenerateReport>(),
        ..types.operation("post", "/v1/workflows/{workflow}/regenerate", "Plan schedulers and allocations anew")
    });
    list.push(Operation {
        query: ONE,
        request: types.of::<recovery::CorrectResourcesRequest>(),
        response: types.of::<recovery::CorrectResourcesReport>(),
        ..types.operation(
            "post",
            "/v1/workflows/{workflow}/correct-resources",
            "Correct requirements by what was observed",
        )
    });
    list.push(Operation {
        query: ONE,
        request: types.of::<recovery::ClassifyRequest>(),
        response: types.of::<api::Affected>(),
        ..types.operation(
            "post",
            "/v1/workflows/{workflow}/classify",
            "Decide about failed jobs that wait for a person",
        )
    });
    list.push(Operation {
        query: ONE,
        request: types.of::<recovery::ScheduleNodesRequest>(),
        response: types.of::<recovery::NodesScheduled>(),
        ..types.operation("post", "/v1/workflows/{workflow}/schedule-nodes", "Ask Slurm for allocations of a scheduler")
    });
    list.push(Operation {
        query: ONE,
        response: types.of::<api::Workflow>(),
        ..types.operation(
            "post",
            "/v1/workflows/{workflow}/submit",
            "Have a stored workflow run by the owner of the store",
        )
    });
}

fn runner_operations(types: &mut SchemaGenerator, list: &mut Vec<Operation>) {
    let mut types = Types(types);
    list.push(Operation {
        query: &[("all", "`true` for those that have left too")],
        response: types.of::<api::Page<api::Runner>>(),
        ..types.operation("get", "/v1/runners", "Runners")
    });
    list.push(Operation {
        request: types.of::<wire::RegisterRequest>(),
        response: types.of::<wire::RegisterResponse>(),
        ..types.operation("post", "/v1/runners", "A runner introduces itself")
    });
    list.push(Operation {
        request: types.of::<wire::SyncRequest>(),
        response: types.of::<wire::SyncResponse>(),
        ..types.operation("post", "/v1/runners/{runner}/sync", "A runner says what is and is told what should be")
    });
}

fn slurm_operations(types: &mut SchemaGenerator, list: &mut Vec<Operation>) {
    const CLUSTERS: &str = "/v1/slurmclusters";
    const CLUSTER: &str = "/v1/slurmclusters/{cluster}";
    let mut types = Types(types);
    list.push(Operation {
        query: &[
            NAMESPACE,
            ("workflow", "only of this workflow, by name or number"),
            ("live", "`true` for those that are not over"),
            LIMIT,
            CURSOR,
        ],
        response: types.of::<api::Page<allocation::Allocation>>(),
        ..types.operation("get", "/v1/allocations", "Slurm allocations, those that are over too")
    });
    list.push(Operation {
        request: types.of::<torc_api::document::SlurmClusterDocument>(),
        response: types.of::<api::ClusterApplied>(),
        ..types.operation("post", CLUSTERS, "Make a Slurm cluster match its document")
    });
    list.push(Operation {
        response: types.of::<api::Page<api::SlurmCluster>>(),
        ..types.operation("get", CLUSTERS, "Slurm clusters")
    });
    list.push(Operation {
        response: types.of::<api::SlurmCluster>(),
        ..types.operation("get", CLUSTER, "One Slurm cluster")
    });
    list.push(types.operation("delete", CLUSTER, "Forget a Slurm cluster that no allocation lives in"));
}

fn system_operations(types: &mut SchemaGenerator, list: &mut Vec<Operation>) {
    let mut types = Types(types);
    list.push(Operation {
        response: types.of::<api::Version>(),
        ..types.operation("get", "/v1/version", "The versions of the server and of the runner protocol")
    });
    list.push(Operation {
        request: types.of::<api::GcRequest>(),
        response: types.of::<api::GcResponse>(),
        ..types.operation("post", "/v1/gc", "Forget superseded results and old events")
    });
    list.push(Operation {
        request: types.of::<token::TokenRequest>(),
        response: types.of::<token::TokenResponse>(),
        ..types.operation("post", "/v1/tokens", "Make a token that allows less than the one that asks")
    });
    list.push(Operation {
        query: &[LIMIT, CURSOR],
        response: types.of::<api::Page<api::AuditEntry>>(),
        ..types.operation("get", "/v1/audit", "Who did what, or was refused, oldest first")
    });
    list.push(Operation {
        request: types.of::<api::BackupRequest>(),
        ..types.operation("post", "/v1/backup", "Write a copy of the store")
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(query: &'static [(&'static str, &'static str)], request: bool, response: bool) -> Value {
        let schema = |is: bool, name: &str| is.then(|| json!({ "title": name }));
        let (method, path, summary) = ("post", "/v1/a/{one}/b/{two}", "Do it");
        let (request, response) = (schema(request, "in"), schema(response, "out"));
        Operation { method, path, summary, query, request, response, error: json!({ "title": "error" }) }.describe()
    }

    #[test]
    fn an_operation_is_described_with_all_that_it_takes_and_gives() {
        let whole = operation(&[("limit", "how many")], true, true);
        let in_path =
            |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        let limit =
            json!({ "name": "limit", "in": "query", "description": "how many", "schema": { "type": "string" } });
        let content = |name: &str| json!({ "application/json": { "schema": { "title": name } } });
        let expected = json!({
            "summary": "Do it",
            "parameters": [in_path("one"), in_path("two"), limit],
            "requestBody": { "required": true, "content": content("in") },
            "responses": {
                "200": { "description": "done", "content": content("out") },
                "default": { "description": "refused", "content": content("error") },
            },
        });
        assert_eq!(whole, expected);
        let bare = operation(&[], false, false);
        assert_eq!(bare["responses"]["204"], json!({ "description": "done" }));
        assert!(bare.get("requestBody").is_none() && bare["responses"].get("200").is_none());
    }
}
