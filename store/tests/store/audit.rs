//! The audit log: ordered, in pages, and never changed.

use torc_core::rows::{AuditRow, Changes, EventRow};

use torc_api::filter::AuditFilter;

use crate::samples::new_store;

fn audit_row(who: &str, verb: &str) -> AuditRow {
    AuditRow {
        time_ms: 1,
        who: who.to_owned(),
        scope: "admin".to_owned(),
        verb: verb.to_owned(),
        object: "workflows/w".to_owned(),
        outcome: "ok".to_owned(),
    }
}

#[tokio::test]
async fn entries_come_back_in_their_order_a_page_at_a_time() {
    let (_folder, store) = new_store().await;
    let rows: Vec<AuditRow> = (0..5)
        .map(|number| audit_row(if number % 2 == 0 { "ada" } else { "bob" }, &format!("verb {number}")))
        .collect();
    store.commit(&Changes { audit: rows.clone(), ..Changes::default() }).await.unwrap();
    let first = store.audit(&AuditFilter { limit: Some(3), ..AuditFilter::default() }).await.unwrap();
    assert_eq!(first.items.iter().map(|(_, row)| row.clone()).collect::<Vec<_>>(), rows[..3]);
    let rest = store.audit(&AuditFilter { cursor: first.next, ..AuditFilter::default() }).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (2, None));
    let of_bob = AuditFilter { who: Some("bob".to_owned()), ..AuditFilter::default() };
    assert_eq!(store.audit(&of_bob).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn a_deed_is_written_with_what_it_changed_or_not_at_all() {
    let (_folder, store) = new_store().await;
    let event = EventRow { sequence: 1, reason: "r".to_owned(), ..EventRow::default() };
    let both = Changes { events: vec![event], audit: vec![audit_row("ada", "apply")], ..Changes::default() };
    store.commit(&both).await.unwrap();
    store.commit(&both).await.expect_err("the event is there already");
    assert_eq!(store.audit(&AuditFilter::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn the_audit_log_cannot_be_changed() {
    let (folder, store) = new_store().await;
    store.commit(&Changes { audit: vec![audit_row("ada", "apply")], ..Changes::default() }).await.unwrap();
    store.close().await.unwrap();
    let mut path = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let path = path.find(|path| path.extension().is_some_and(|extension| extension == "db")).unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    for statement in ["update audit set who = 'bob'", "delete from audit"] {
        let error = sqlx::query(statement).execute(&mut connection).await.unwrap_err();
        assert!(error.to_string().contains("never changed"), "{error}");
    }
}
