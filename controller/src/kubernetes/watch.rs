//! Watches objects, and looks at one when it changes, when the engine has news of it, or when it is time.

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

use super::context::{Context, Guarded};
use super::readiness::Readiness;
use super::reconcile::{after_error, reconcile};
use super::watch_backoff::with_backoff;

/// Objects may be large: so many at a time are listed.
pub(super) const PAGE: u32 = 50;
/// So many objects are looked at at once.
const AT_ONCE: u16 = 8;
/// News of the engine are gathered for so long.
const GATHER: Duration = Duration::from_millis(200);
/// What waits to be looked at; more of them wait with whoever has the news.
const BACKLOG: usize = 256;

/// The watched namespaces.
pub(super) struct Watches {
    watches: Vec<Watch>,
}

struct Watch {
    /// None for all.
    namespace: Option<String>,
    store: Store<Guarded>,
    writer: Writer<Guarded>,
}

impl Watches {
    pub fn new(namespaces: &[String]) -> Self {
        let one = |namespace: Option<String>| {
            let (store, writer) = reflector::store();
            Watch { namespace, store, writer }
        };
        let watches = match namespaces {
            [] => vec![one(None)],
            some => some.iter().cloned().map(Some).map(one).collect(),
        };
        Self { watches }
    }

    pub fn stores(&self) -> Vec<Store<Guarded>> {
        self.watches.iter().map(|watch| watch.store.clone()).collect()
    }

    pub fn run(self, context: &Arc<Context>, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        let mut ways = Vec::new();
        let unlisted = Arc::new(AtomicUsize::new(self.watches.len()));
        for watch in self.watches {
            let (sender, receiver) = mpsc::channel(BACKLOG);
            ways.push((watch.namespace.clone(), sender));
            tasks.push(tokio::spawn(look_after(
                watch,
                receiver,
                Arc::clone(&unlisted),
                Arc::clone(context),
                stop.clone(),
            )));
        }
        tasks.push(tokio::spawn(forward_changes(Arc::clone(context), ways, stop.clone())));
        tasks
    }
}

/// Looks after the objects of one namespace, or of all.
async fn look_after(
    watch: Watch,
    news: mpsc::Receiver<ObjectRef<Guarded>>,
    unlisted: Arc<AtomicUsize>,
    context: Arc<Context>,
    stop: CancellationToken,
) {
    let api = match &watch.namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    // Lists come in pages, watches go on after they end, and one that is too old (410) begins with a new list.
    let seen = watcher(api, watcher::Config::default().page_size(PAGE));
    let seen = with_backoff(seen, telling(context.readiness.clone()))
        .modify(|object: &mut Guarded| {
            kube::Resource::meta_mut(object).managed_fields = None;
        })
        .reflect(watch.writer)
        .inspect(note_listed(unlisted, context.readiness.clone()))
        .applied_objects();
    let seen = seen.filter_map(|seen| std::future::ready(seen.ok().map(|object| ObjectRef::from_obj(&object))));
    let news = futures::stream::unfold(news, |mut news| async move { news.recv().await.map(|one| (one, news)) });
    let requests = futures::stream::select(seen, news)
        .map(|reference| Ok::<ReconcileRequest<Guarded>, std::convert::Infallible>(ReconcileRequest::from(reference)));
    let passes = applier(
        |object, context| Box::pin(reconcile(object, context)),
        after_error,
        context,
        watch.store,
        requests.take_until(stop.cancelled_owned()),
        Config::default().concurrency(AT_ONCE),
    );
    // What went wrong was told where it did; what is not there any more has been deleted.
    passes.for_each(|_| async {}).await;
}

/// Tells what is wrong with a watch; whoever asks whether the server is ready hears it, too.
fn telling(readiness: Readiness) -> impl FnMut(&str) {
    move |said| {
        tracing::warn!("workflows are not being watched: {said}");
        readiness.cannot_list(said);
    }
}

/// Notes the end of the first list; with that of the last namespace everything has been listed.
fn note_listed(
    unlisted: Arc<AtomicUsize>,
    readiness: Readiness,
) -> impl FnMut(&watcher::Result<watcher::Event<Guarded>>) {
    let mut is_listed = false;
    move |event| {
        let is_first = matches!(event, Ok(watcher::Event::InitDone)) && !std::mem::replace(&mut is_listed, true);
        if is_first && unlisted.fetch_sub(1, Ordering::SeqCst) == 1 {
            readiness.listed();
        }
    }
}

type RequeueSender = (Option<String>, mpsc::Sender<ObjectRef<Guarded>>);

/// What has changed in the engine is looked at.
async fn forward_changes(context: Arc<Context>, ways: Vec<RequeueSender>, stop: CancellationToken) {
    let touched = context.engine.changed_workflows();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = touched.some() => {}
        }
        tokio::time::sleep(GATHER).await;
        for id in touched.take() {
            if let Some(reference) = reference(&context, id).await {
                let way = ways.iter().find(|(of, _)| of.is_none() || *of == reference.namespace);
                if let Some((_, way)) = way {
                    // Nobody is there any more only when the server ends.
                    let _ = way.send(reference).await;
                }
            }
        }
    }
}

/// None for workflows that are nobody's object.
async fn reference(context: &Context, id: WorkflowId) -> Option<ObjectRef<Guarded>> {
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
        let mut first = note_listed(Arc::clone(&unlisted), readiness.clone());
        let mut second = note_listed(unlisted, readiness.clone());
        // A list that begins is none, and one that is made again is no other.
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
    async fn news_go_to_the_watch_of_their_namespace() {
        use super::super::tests::{Fixture, jobs, workflow};
        let mut fixture = Fixture::new().await;
        fixture.sees(workflow("w", 1, jobs(&["a"])));
        let ((other, mut of_other), (lab, mut of_lab)) = (mpsc::channel(4), mpsc::channel(4));
        let ways = vec![(Some("other".to_owned()), other), (Some("lab".to_owned()), lab)];
        let stop = CancellationToken::new();
        let task = tokio::spawn(forward_changes(Arc::clone(&fixture.context), ways, stop.clone()));
        // It listens once its task has run.
        tokio::task::yield_now().await;
        fixture.server.apply("ada", "other", "w", crate::tests::jobs(&["a"])).await;
        fixture.server.apply("ada", "lab", "w", crate::tests::jobs(&["a"])).await;
        let news = tokio::time::timeout(Duration::from_secs(20), of_lab.recv()).await;
        let reference = news.ok().flatten().map(|one| (one.name, one.namespace));
        assert_eq!(reference, Some(("w".to_owned(), Some("lab".to_owned()))));
        assert!(of_other.try_recv().is_err(), "nobody's object has changed there");
        stop.cancel();
        assert!(task.await.is_ok());
    }
}
