//! Tokens of service accounts: the reviews that the API server receives.

use torc_api::token::Grant;

use super::super::token_review::{Lists, Reviews};
use super::*;

fn reviews(api: &FakeApi) -> Reviews {
    let config = KubernetesConfig {
        runner_accounts: vec!["torc/runner".to_owned()],
        admin_accounts: vec!["ops/admin".to_owned()],
        viewer_account: "reader".to_owned(),
        editor_account: "writer".to_owned(),
        ..KubernetesConfig::default()
    };
    Reviews::new(api.client(), "torc-api".to_owned(), Lists::of(&config))
}

fn known(username: &str) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {},
        "status": { "authenticated": true, "audiences": ["torc-api"], "user": { "username": username } },
    })
}

#[tokio::test]
async fn each_account_has_the_rights_of_its_list() {
    let lab = || "lab".to_owned();
    for (username, expected) in [
        ("system:serviceaccount:torc:runner", Some(Grant::Pool)),
        ("system:serviceaccount:ops:admin", Some(Grant::Admin)),
        ("system:serviceaccount:lab:reader", Some(Grant::Viewer { namespace: lab() })),
        ("system:serviceaccount:lab:writer", Some(Grant::Editor { namespace: lab() })),
        ("system:serviceaccount:lab:runner", None),
        ("system:serviceaccount:lab:admin", None),
    ] {
        let api = FakeApi::default();
        api.answers("POST", "/apis/authentication.k8s.io/v1/tokenreviews", 201, known(username));
        let caller = reviews(&api).caller("a.b.c").await;
        assert_eq!(caller.map(|caller| caller.grant), expected, "{username}");
        let asked = api.calls();
        assert_eq!(asked[0].body["spec"], json!({ "token": "a.b.c", "audiences": ["torc-api"] }));
    }
}

#[tokio::test]
async fn an_answer_is_remembered_and_a_failure_is_not() {
    let api = FakeApi::default();
    let reviews = reviews(&api);
    let (code, body) = failure(500, "InternalError", "no");
    api.answers("POST", "/apis/authentication.k8s.io/v1/tokenreviews", code, body);
    assert!(reviews.caller("a.b.c").await.is_none());
    api.answers("POST", "/apis/authentication.k8s.io/v1/tokenreviews", 201, known("system:serviceaccount:torc:runner"));
    api.calls();
    for _ in 0..3 {
        assert_eq!(reviews.caller("a.b.c").await.map(|caller| caller.name).as_deref(), Some("torc/runner"));
    }
    assert_eq!(api.calls().len(), 1);
    for word in ["", "a", "a.b", "a.b.c.d"] {
        assert!(reviews.caller(word).await.is_none(), "{word}");
    }
    assert!(api.calls().is_empty(), "what is no such token is not asked about");
}
