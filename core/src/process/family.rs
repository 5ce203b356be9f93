//! The descendants of a command: its process group and those that left it, found by
//! parents, by what we saw before, and by the run's words in their environment.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group,
    test_kill_process_group, waitid, waitpid,
};

use super::attempt::{Identity, Named, RunKey};
use crate::fsx;
use crate::fsx::proc::Process;

/// Whether this process adopts orphans.
static ADOPTS: AtomicBool = AtomicBool::new(false);
/// The commands of this process that run now.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// How many are being started, and are not yet among those.
static STARTING: AtomicUsize = AtomicUsize::new(0);
/// The groups of commands whose processes stayed on purpose.
static KEPT: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Makes this process the new parent of every orphaned descendant, so that a command's
/// processes are found even when they leave its group and session and drop their
/// environment. For a process that is the engine's own: sessions that anything else in
/// it starts would be taken for a command's. False where the system cannot do it.
pub fn adopt_orphans() -> bool {
    #[cfg(target_os = "linux")]
    if rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok() {
        ADOPTS.store(true, Ordering::SeqCst);
    }
    ADOPTS.load(Ordering::SeqCst)
}

/// Held while a command is started: until its family is known, its process could be taken
/// for another's.
pub(super) struct Starting(());

impl Starting {
    /// Begins.
    pub(super) fn begin() -> Self {
        STARTING.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        STARTING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The processes of one attempt.
pub(super) struct Family {
    main: u32,
    group: Pid,
    started: u64,
    words: Vec<Vec<u8>>,
    /// The group has had no member: its number may be another's from now on.
    over: Arc<AtomicBool>,
    seen: HashSet<(u32, u64)>,
}

/// Who of a family lives, besides the command itself.
#[derive(Debug, Default)]
pub(super) struct Living {
    /// Members of the command's process group.
    pub(super) group: Vec<Process>,
    /// Descendants outside it.
    pub(super) outside: Vec<Process>,
}

impl Living {
    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Process> {
        self.group.iter().chain(&self.outside)
    }

    /// True if nobody is left.
    pub(super) fn is_empty(&self) -> bool {
        self.group.is_empty() && self.outside.is_empty()
    }

    /// Their command lines, sorted.
    pub(super) fn named(&self) -> Vec<Named> {
        let mut out: Vec<Named> = self.all().map(named).collect();
        out.sort();
        out
    }
}

/// A process with its command line.
pub(super) fn named(process: &Process) -> Named {
    let command = fsx::proc::process_command(process.pid).unwrap_or_default();
    Named { pid: process.pid, command }
}

impl Family {
    /// The family of a command that has just been started.
    pub(super) fn new(group: Pid, identity: &Identity) -> Self {
        let main = group.as_raw_nonzero().get().unsigned_abs();
        lock(&RUNNING).push(main);
        Self {
            main,
            group,
            started: fsx::proc::process(main).map_or(0, |p| p.start),
            words: words(&identity.run, Some(&identity.execution)),
            over: Arc::default(),
            seen: HashSet::new(),
        }
    }

    /// Whether the group has had no member when somebody looked.
    pub(super) fn over(&self) -> Arc<AtomicBool> {
        self.over.clone()
    }

    fn in_group(&self, p: &Process) -> bool {
        p.group == self.main && !self.over.load(Ordering::SeqCst)
    }

    /// Looks who lives, remembers them, and reaps what was ours and has ended. Blocks.
    pub(super) fn look(&mut self) -> Living {
        let all = fsx::proc::processes();
        let me = std::process::id();
        if group_gone(self.group) {
            self.over.store(true, Ordering::SeqCst);
        }
        reap_kept(&all, me);
        let members = self.members(&all, me);
        let mut living = Living::default();
        for process in all.iter().filter(|p| p.pid != me && members.contains(&p.pid)) {
            self.seen.insert((process.pid, process.start));
            match process {
                p if p.zombie && p.parent == me && p.pid != self.main => reap(p.pid),
                p if p.zombie => {}
                p if self.in_group(p) => living.group.push(*p),
                p => living.outside.push(*p),
            }
        }
        living
    }

    /// The ids of all that belong to the family, the command included.
    fn members(&self, all: &[Process], me: u32) -> HashSet<u32> {
        let starting = STARTING.load(Ordering::SeqCst) > 0;
        let others = lock(&RUNNING).clone();
        let alone = !starting && others.iter().all(|m| *m == self.main);
        let session = all.iter().find(|p| p.pid == me).map_or(0, |p| p.session);
        let user = fsx::user_id();
        let own = |p: &Process| {
            self.in_group(p)
                || p.pid == self.main && p.start == self.started
                || self.seen.contains(&(p.pid, p.start))
                || p.start >= self.started
                    && p.pid != me
                    && !others.contains(&p.pid)
                    && (self.is_orphan(p, me, session, alone) || self.has_words(p, user))
        };
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for p in all {
            children.entry(p.parent).or_default().push(p.pid);
        }
        let mut todo: Vec<u32> = all.iter().filter(|p| own(p)).map(|p| p.pid).collect();
        let mut members: HashSet<u32> = HashSet::new();
        while let Some(pid) = todo.pop() {
            if pid != me && members.insert(pid) {
                todo.extend(children.get(&pid).into_iter().flatten());
            }
        }
        members
    }

    /// A process that we adopted and never started: it left our session, or belongs to
    /// an engine below us that is gone; and no other command runs whose it could be.
    fn is_orphan(&self, p: &Process, me: u32, session: u32, alone: bool) -> bool {
        let adopted = alone && p.parent == me && ADOPTS.load(Ordering::SeqCst);
        let execution = |pid| fsx::proc::process_variable(pid, "BACKTRAIL_EXECUTION_ID");
        let nested = || execution(p.pid).is_some_and(|e| execution(me) != Some(e));
        adopted && (p.session != session || nested())
    }

    fn has_words(&self, p: &Process, user: u32) -> bool {
        !p.zombie
            && fsx::proc::process_owner(p.pid) == Some(user)
            && fsx::proc::process_has(p.pid, &self.words)
    }
}

/// Sends a signal to the group.
pub(super) fn signal_group(group: Pid, signal: Signal) {
    // Gone already, or another user's: who is left shows that later.
    let _ = kill_process_group(group, signal);
}

/// True if surely nobody is left of a command that has ended: a cheap answer for the
/// usual case.
pub(super) fn surely_gone(group: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    ADOPTS.load(Ordering::SeqCst)
        && group_gone(group)
        && matches!(waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD))
}

/// True if the group has no member, not even one that waits to be reaped.
pub(super) fn group_gone(group: Pid) -> bool {
    test_kill_process_group(group) == Err(rustix::io::Errno::SRCH)
}

impl Drop for Family {
    fn drop(&mut self) {
        lock(&RUNNING).retain(|m| *m != self.main);
    }
}

/// Sends KILL to each.
pub(super) fn kill<'p>(processes: impl IntoIterator<Item = &'p Process>) {
    for process in processes {
        if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL); // gone already, or another user's
        }
    }
}

/// The environment entries by which processes of a run, or of one execution, are known.
pub(super) fn words(run: &RunKey, execution: Option<&str>) -> Vec<Vec<u8>> {
    let mut out = vec![
        format!("BACKTRAIL_RUN_ID={}", run.run).into_bytes(),
        format!("BACKTRAIL_STORE_ID={}", run.store).into_bytes(),
    ];
    out.extend(execution.map(|e| format!("BACKTRAIL_EXECUTION_ID={e}").into_bytes()));
    out
}

fn lock(list: &'static Mutex<Vec<u32>>) -> std::sync::MutexGuard<'static, Vec<u32>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers that the processes of this group stay, so that those that end are reaped.
pub(super) fn keep(group: Pid) {
    lock(&KEPT).push(group.as_raw_nonzero().get().unsigned_abs());
}

fn reap_kept(all: &[Process], me: u32) {
    let kept = lock(&KEPT).clone();
    all.iter().filter(|p| p.zombie && p.parent == me && kept.contains(&p.group)).for_each(|p| {
        reap(p.pid);
    });
}

fn reap(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG); // somebody else may have done it
    }
}
