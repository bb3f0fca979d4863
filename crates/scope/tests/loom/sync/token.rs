//! tokio-util's `CancellationToken`: a tree of flags, and who waits for them.
//!
//! Its operations are single steps that loom does not see, taken with the step before them: no rule under test rests on
//! what lies between a step of the scope and one of its token.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

#[derive(Clone)]
pub(crate) struct CancellationToken {
    node: Arc<TokenNode>,
}

struct TokenNode {
    parent: Option<CancellationToken>,
    /// One for the whole tree: cancelling is one step for all below, as it is with the original.
    tree: Arc<Mutex<Tree>>,
    id: usize,
}

#[derive(Default)]
struct Tree {
    cancelled: Vec<bool>,
    waiting: Vec<Waker>,
}

impl CancellationToken {
    pub(crate) fn new() -> Self {
        Self::make(None, Arc::default())
    }

    pub(crate) fn child_token(&self) -> Self {
        Self::make(Some(self.clone()), Arc::clone(&self.node.tree))
    }

    fn make(parent: Option<Self>, tree: Arc<Mutex<Tree>>) -> Self {
        let id = {
            let mut tree = tree.lock().expect("a panic ends the model");
            tree.cancelled.push(false);
            tree.cancelled.len() - 1
        };
        Self {
            node: Arc::new(TokenNode { parent, tree, id }),
        }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.node.tree.lock().expect("a panic ends the model")
    }

    pub(crate) fn cancel(&self) {
        let mut tree = self.tree();
        tree.cancelled[self.node.id] = true;
        let waiting = std::mem::take(&mut tree.waiting);
        // Waking is a step that loom sees: the other threads must find the tree unlocked.
        drop(tree);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn is_cancelled_in(&self, tree: &Tree) -> bool {
        tree.cancelled[self.node.id]
            || self
                .node
                .parent
                .as_ref()
                .is_some_and(|parent| parent.is_cancelled_in(tree))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled_in(&self.tree())
    }

    pub(crate) fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        WaitForCancellationFuture { token: self }
    }
}

pub(crate) struct WaitForCancellationFuture<'a> {
    token: &'a CancellationToken,
}

impl Future for WaitForCancellationFuture<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut tree = self.token.tree();
        if self.token.is_cancelled_in(&tree) {
            return Poll::Ready(());
        }
        tree.waiting.push(cx.waker().clone());
        Poll::Pending
    }
}
