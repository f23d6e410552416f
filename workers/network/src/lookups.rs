//! Lookups of names by the system's resolver, with bounds.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// Maximum number of names that are resolved at the same time, each by one thread. The system's
/// resolver cannot be interrupted, so a name without an answer keeps its thread for 5 to 30 s.
pub(crate) const MAX_LOOKUPS: usize = 8;

/// Time for resolving a name.
const LOOKUP_TIME: Duration = Duration::from_secs(5);

/// Maximum number of addresses of one name that are checked.
const MAX_FOUND: usize = 32;

/// Time for which the addresses of a name are used again. Each connection checks them again. Programs open many
/// connections to one host at a time.
const REUSED_FOR: Duration = Duration::from_secs(2);

/// Maximum number of names with addresses that are used again.
const MAX_REUSED: usize = 64;

type Addresses = watch::Sender<Option<Vec<IpAddr>>>;
type Resolver = dyn Fn(&str) -> Vec<IpAddr> + Send + Sync;

/// Lookups of names. Connections to one name share a lookup. A lookup that no connection waits for any more does not
/// start.
pub(crate) struct Lookups {
    open: RefCell<HashMap<String, Rc<Addresses>>>,
    recent: RefCell<HashMap<String, (Instant, Vec<IpAddr>)>>,
    threads: Semaphore,
    resolver: Arc<Resolver>,
}

impl Lookups {
    /// Creates lookups by the system's resolver.
    pub(crate) fn by_system() -> Rc<Self> {
        Self::by(Arc::new(|name| {
            let resolved = (name, 0).to_socket_addrs();
            resolved
                .map(|all| all.map(|address| address.ip()).take(MAX_FOUND).collect())
                .unwrap_or_default()
        }))
    }

    /// Lookups by this function, which may block.
    pub(crate) fn by(resolver: Arc<Resolver>) -> Rc<Self> {
        let threads = Semaphore::new(MAX_LOOKUPS);
        let (open, recent) = (RefCell::default(), RefCell::default());
        Rc::new(Self { open, recent, threads, resolver })
    }

    /// Returns the addresses of a name. Empty if the name does not exist or no resolver answers in time.
    pub(crate) async fn find(self: &Rc<Self>, name: &str) -> Vec<IpAddr> {
        if let Some((at, addresses)) = self.recent.borrow().get(name)
            && at.elapsed() < REUSED_FOR
        {
            return addresses.clone();
        }

        let mut addresses = self.subscribe(name);
        match timeout(LOOKUP_TIME, addresses.wait_for(Option::is_some)).await {
            Ok(Ok(addresses)) => addresses.clone().unwrap_or_default(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }

    fn subscribe(self: &Rc<Self>, name: &str) -> watch::Receiver<Option<Vec<IpAddr>>> {
        let mut open = self.open.borrow_mut();
        if let Some(same) = open.get(name) {
            return same.subscribe();
        }

        let (sender, addresses) = watch::channel(None);
        let sender = Rc::new(sender);
        open.insert(name.to_owned(), Rc::clone(&sender));
        tokio::task::spawn_local(Rc::clone(self).look(name.to_owned(), sender));
        addresses
    }

    async fn look(self: Rc<Self>, name: String, sender: Rc<Addresses>) {
        let thread = tokio::select! {
            thread = self.threads.acquire() => thread.ok(),
            // No connection waits for it.
            () = sender.closed() => None,
        };

        let mut addresses = Vec::new();
        if thread.is_some() {
            let (resolver, name) = (Arc::clone(&self.resolver), name.clone());
            let looking = tokio::task::spawn_blocking(move || resolver(&name));
            addresses = looking.await.unwrap_or_default();
        }

        self.open.borrow_mut().remove(&name);
        // The next connection repeats a lookup that failed.
        if !addresses.is_empty() {
            let mut recent = self.recent.borrow_mut();
            recent.retain(|_, (at, _)| at.elapsed() < REUSED_FOR);
            if recent.len() < MAX_REUSED {
                recent.insert(name, (Instant::now(), addresses.clone()));
            }
        }
        sender.send_replace(Some(addresses));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use tokio::task::LocalSet;

    #[tokio::test]
    async fn names_share_lookups_and_abandoned_lookups_do_not_start() {
        let (calls, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let lookups = {
            let (calls, answer) = (Arc::clone(&calls), Arc::clone(&answer));
            Lookups::by(Arc::new(move |name| {
                calls.fetch_add(1, Ordering::SeqCst);
                while name.starts_with("silent") && !answer.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                vec!["192.0.2.1".parse().unwrap()]
            }))
        };
        let test = async {
            let mut same: Vec<_> = (0..50).map(|_| lookups.subscribe("silent0")).collect();
            let silent: Vec<_> =
                (1..MAX_LOOKUPS).map(|n| lookups.subscribe(&format!("silent{n}"))).collect();
            while calls.load(Ordering::SeqCst) < MAX_LOOKUPS {
                tokio::task::yield_now().await;
            }
            // All threads are busy. 1,000 connections start lookups and give up.
            drop((0..1000).map(|n| lookups.subscribe(&format!("late{n}"))).collect::<Vec<_>>());
            while lookups.open.borrow().len() != MAX_LOOKUPS {
                tokio::task::yield_now().await;
            }
            answer.store(true, Ordering::SeqCst);
            for found in same.iter_mut().chain(&mut { silent }) {
                assert_eq!(
                    found.wait_for(Option::is_some).await.unwrap().as_ref().unwrap().len(),
                    1
                );
            }
            assert_eq!(lookups.find("next.example").await.len(), 1);
            assert_eq!(calls.load(Ordering::SeqCst), MAX_LOOKUPS + 1);
            assert!(lookups.open.borrow().is_empty());
        };
        LocalSet::new().run_until(test).await;
    }
}
