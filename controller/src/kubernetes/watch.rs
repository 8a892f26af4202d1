//! Watches objects and reconciles each when it changes, when the engine changes its workflow, or when it is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::controller::{Config, ReconcileRequest, applier};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, watcher};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use torc_core::ids::WorkflowId;

use super::context::{Context, GuardedWorkflow};
use super::readiness::Readiness;
use super::reconcile::{after_error, reconcile};
use super::watch_backoff::with_backoff;

/// Number of objects in one page of a list: objects may be large.
pub(super) const PAGE: u32 = 50;
/// Maximum number of objects that are reconciled at the same time.
const MAX_CONCURRENT_RECONCILES: u16 = 8;
/// Delay before changes of the engine are forwarded, so that many changes of a workflow cause one reconcile.
const CHANGE_BATCH_DELAY: Duration = Duration::from_millis(200);
/// Capacity of the queue of changed objects. When it is full, the senders wait.
const QUEUE_CAPACITY: usize = 256;

/// The watches of workflows: one for each configured namespace, or one for all.
pub(super) struct Watches {
    watches: Vec<NamespaceWatch>,
}

struct NamespaceWatch {
    namespace: Option<String>,
    store: Store<GuardedWorkflow>,
    writer: Writer<GuardedWorkflow>,
}

impl Watches {
    pub fn new(namespaces: &[String]) -> Self {
        let one = |namespace: Option<String>| {
            let (store, writer) = reflector::store();
            NamespaceWatch { namespace, store, writer }
        };
        let watches = match namespaces {
            [] => vec![one(None)],
            some => some.iter().cloned().map(Some).map(one).collect(),
        };
        Self { watches }
    }

    pub fn stores(&self) -> Vec<Store<GuardedWorkflow>> {
        self.watches.iter().map(|watch| watch.store.clone()).collect()
    }

    pub fn run(self, context: &Arc<Context>, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        let mut senders = Vec::new();
        let unlisted = Arc::new(AtomicUsize::new(self.watches.len()));
        for watch in self.watches {
            let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
            senders.push((watch.namespace.clone(), sender));
            tasks.push(tokio::spawn(reconcile_namespace(
                watch,
                receiver,
                Arc::clone(&unlisted),
                Arc::clone(context),
                stop.clone(),
            )));
        }
        tasks.push(tokio::spawn(forward_changes(Arc::clone(context), senders, stop.clone())));
        tasks
    }
}

/// Reconciles the objects of one namespace, or of all.
async fn reconcile_namespace(
    watch: NamespaceWatch,
    changes: mpsc::Receiver<ObjectRef<GuardedWorkflow>>,
    unlisted: Arc<AtomicUsize>,
    context: Arc<Context>,
    stop: CancellationToken,
) {
    let api = match &watch.namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    // Lists come in pages. Watches restart when they end, and begin with a new list when their version is too old (410).
    let seen = watcher(api, watcher::Config::default().page_size(PAGE));
    let seen = with_backoff(seen, watch_error_reporter(context.readiness.clone()))
        .modify(|object: &mut GuardedWorkflow| {
            kube::Resource::meta_mut(object).managed_fields = None;
        })
        .reflect(watch.writer)
        .inspect(mark_listed(unlisted, context.readiness.clone()))
        .applied_objects();
    let seen = seen.filter_map(|seen| std::future::ready(seen.ok().map(|object| ObjectRef::from_obj(&object))));
    let changes =
        futures::stream::unfold(changes, |mut changes| async move { changes.recv().await.map(|one| (one, changes)) });
    let requests = futures::stream::select(seen, changes).map(|reference| {
        Ok::<ReconcileRequest<GuardedWorkflow>, std::convert::Infallible>(ReconcileRequest::from(reference))
    });
    let passes = applier(
        |object, context| Box::pin(reconcile(object, context)),
        after_error,
        context,
        watch.store,
        requests.take_until(stop.cancelled_owned()),
        Config::default().concurrency(MAX_CONCURRENT_RECONCILES),
    );
    // Errors were logged where they occurred. An object that is missing was deleted.
    passes.for_each(|_| async {}).await;
}

/// Returns a function that logs an error of a watch and adds it to the readiness.
fn watch_error_reporter(readiness: Readiness) -> impl FnMut(&str) {
    move |said| {
        tracing::warn!(error = said, "workflows cannot be watched");
        readiness.cannot_list(said);
    }
}

/// Records the end of the first list. After that of the last namespace, all objects are known.
fn mark_listed(
    unlisted: Arc<AtomicUsize>,
    readiness: Readiness,
) -> impl FnMut(&watcher::Result<watcher::Event<GuardedWorkflow>>) {
    let mut is_listed = false;
    move |event| {
        let is_first = matches!(event, Ok(watcher::Event::InitDone)) && !std::mem::replace(&mut is_listed, true);
        if is_first && unlisted.fetch_sub(1, Ordering::SeqCst) == 1 {
            readiness.listed();
        }
    }
}

type RequeueSender = (Option<String>, mpsc::Sender<ObjectRef<GuardedWorkflow>>);

/// Requeues the objects of changed workflows.
async fn forward_changes(context: Arc<Context>, senders: Vec<RequeueSender>, stop: CancellationToken) {
    let touched = context.engine.changed_workflows();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = touched.some() => {}
        }
        tokio::time::sleep(CHANGE_BATCH_DELAY).await;
        for id in touched.take() {
            if let Some(reference) = reference(&context, id).await {
                let sender = senders.iter().find(|(of, _)| of.is_none() || *of == reference.namespace);
                if let Some((_, sender)) = sender {
                    // Sending fails only when the server stops.
                    let _ = sender.send(reference).await;
                }
            }
        }
    }
}

/// Returns the object of a workflow. A workflow without an object has none.
async fn reference(context: &Context, id: WorkflowId) -> Option<ObjectRef<GuardedWorkflow>> {
    let object = context.object_of(id.0).await?;
    Some(ObjectRef::new(&object.name).within(&object.namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_listed_when_the_last_namespace_is() {
        let (unlisted, readiness) = (Arc::new(AtomicUsize::new(2)), Readiness::default());
        readiness.lists();
        let mut first = mark_listed(Arc::clone(&unlisted), readiness.clone());
        let mut second = mark_listed(unlisted, readiness.clone());
        // The start of a list is not its end, and a repeated list is not a new one.
        for event in [watcher::Event::Init, watcher::Event::InitDone, watcher::Event::InitDone] {
            first(&Ok(event));
            assert!(!readiness.has_listed());
        }
        second(&Ok(watcher::Event::InitDone));
        assert!(readiness.has_listed());
    }

    #[test]
    fn each_namespace_has_a_watch_of_its_own_and_none_means_all() {
        let of = |namespaces: &[&str]| -> Vec<Option<String>> {
            let names: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
            Watches::new(&names).watches.iter().map(|watch| watch.namespace.clone()).collect()
        };
        assert_eq!(of(&[]), [None]);
        assert_eq!(of(&["a", "b"]), [Some("a".to_owned()), Some("b".to_owned())]);
        assert_eq!(Watches::new(&["a".to_owned(), "b".to_owned()]).stores().len(), 2);
    }

    #[tokio::test]
    async fn changes_go_to_the_watch_of_their_namespace() {
        use super::super::tests::{Fixture, jobs, workflow};
        let mut fixture = Fixture::new().await;
        fixture.list_object(workflow("w", 1, jobs(&["a"])));
        let ((other, mut of_other), (lab, mut of_lab)) = (mpsc::channel(4), mpsc::channel(4));
        let senders = vec![(Some("other".to_owned()), other), (Some("lab".to_owned()), lab)];
        let stop = CancellationToken::new();
        let task = tokio::spawn(forward_changes(Arc::clone(&fixture.context), senders, stop.clone()));
        // The watch starts when its task first runs.
        tokio::task::yield_now().await;
        fixture.server.apply("ada", "other", "w", crate::tests::jobs(&["a"])).await;
        fixture.server.apply("ada", "lab", "w", crate::tests::jobs(&["a"])).await;
        let changes = tokio::time::timeout(Duration::from_secs(20), of_lab.recv()).await;
        let reference = changes.ok().flatten().map(|one| (one.name, one.namespace));
        assert_eq!(reference, Some(("w".to_owned(), Some("lab".to_owned()))));
        assert!(of_other.try_recv().is_err(), "no object has changed there");
        stop.cancel();
        assert!(task.await.is_ok());
    }
}
