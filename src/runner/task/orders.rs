//! What an alloc tells a task, as whoever works on the task hears it.

use tokio::sync::watch;

use crate::runner::decide::coordinator::{Cause, Order};

/// What an alloc tells a task beyond starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    End(Cause),
    Recall,
}

/// Why the task is to end, once it is.
pub async fn end_wished(order: &mut watch::Receiver<Order>) -> Cause {
    loop {
        if let Told::End(cause) = told(order, true).await {
            return cause;
        }
    }
}

/// What it is told but to start. `recalled`: that it is to begin anew it knows already.
pub async fn told(order: &mut watch::Receiver<Order>, recalled: bool) -> Told {
    loop {
        match *order.borrow_and_update() {
            Order::End(cause) => return Told::End(cause),
            Order::Recall if !recalled => return Told::Recall,
            Order::Keep | Order::Start | Order::Recall => {}
        }
        // Ends: one branch of a select.
        if order.changed().await.is_err() {
            // Ends: the alloc is gone, and nobody can tell it anything any more.
            std::future::pending::<()>().await;
        }
    }
}
