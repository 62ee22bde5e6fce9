//! `serve` and `work`, each a process of this very binary.
//!
//! They are our direct children: until we have reaped one, nobody else can get its pid, so a signal always reaches the
//! process we started or nobody. Each has a process group of its own, so a Ctrl-C in the terminal reaches only us, and
//! we end them in order.

use std::{
    collections::VecDeque,
    env, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::watchdog::Watchdog;

/// How long a process may take to end after SIGTERM; more than a worker's drain.
const END_WAIT: Duration = Duration::from_secs(30);
/// A process is ready to be told to end within this time of its start, also on a busy machine.
const YOUNG: Duration = Duration::from_secs(5);
const SIGTERM: i32 = 15;
const TAIL_LINES: usize = 15;

/// One `serve` and some `work`. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct Processes {
    program: PathBuf,
    dir: PathBuf,
    config: PathBuf,
    serve: Process,
    /// The longest running first.
    workers: VecDeque<Process>,
    /// Workers started so far, for their names.
    started: usize,
    kills: u64,
    watchdog: Watchdog,
}

#[derive(Debug)]
struct Process {
    name: String,
    pid: u32,
    child: Child,
    started_at: Instant,
    /// When it was told to end.
    was_young: bool,
}

impl Processes {
    /// Starts them; logs go to `dir`, which is removed if we are killed.
    pub(crate) fn start(dir: &Path, config: &Path, workers: usize) -> anyhow::Result<Self> {
        let program = env::current_exe().context("cannot find the dispatchq binary that is running")?;
        let mut watchdog = Watchdog::start(dir).context("cannot start /bin/sh")?;
        let serve = spawn(&program, dir, config, "serve", "serve")?;
        watchdog.watch(serve.pid);
        let mut processes = Self {
            program,
            dir: dir.to_owned(),
            config: config.to_owned(),
            serve,
            workers: VecDeque::new(),
            started: 0,
            kills: 0,
            watchdog,
        };
        for _ in 0..workers {
            processes.start_worker()?;
        }
        Ok(processes)
    }

    fn start_worker(&mut self) -> anyhow::Result<()> {
        self.started += 1;
        let worker = spawn(&self.program, &self.dir, &self.config, "work", &format!("work-{}", self.started))?;
        self.watchdog.watch(worker.pid);
        self.workers.push_back(worker);
        Ok(())
    }

    /// Kills the longest running worker as a crash would (SIGKILL), and starts another.
    pub(crate) async fn kill_one(&mut self) -> anyhow::Result<()> {
        if let Some(mut worker) = self.workers.pop_front() {
            worker.child.kill().await.with_context(|| format!("cannot kill {}", worker.name))?;
            self.watchdog.forget(worker.pid);
            self.kills += 1;
        }
        self.start_worker()
    }

    /// Of `serve`.
    pub(crate) fn serve_pid(&self) -> u32 {
        self.serve.pid
    }

    pub(crate) fn worker_pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().map(|worker| worker.pid)
    }

    pub(crate) fn kills(&self) -> u64 {
        self.kills
    }

    /// Replaces workers that ended by themselves, which none should; returns a line for each. Nothing goes on without
    /// `serve`: its end is an error.
    pub(crate) fn replace_ended(&mut self) -> anyhow::Result<Vec<String>> {
        if let Some(status) = self.serve.ended() {
            bail!("serve ended ({status}); {}", self.log_tail("serve"));
        }
        let mut ended = Vec::new();
        for index in (0..self.workers.len()).rev() {
            if let Some(status) = self.workers[index].ended()
                && let Some(worker) = self.workers.remove(index)
            {
                self.watchdog.forget(worker.pid);
                ended.push(format!("{} ended by itself ({status}); {}", worker.name, self.log_tail(&worker.name)));
            }
        }
        for _ in &ended {
            self.start_worker()?;
        }
        Ok(ended)
    }

    /// Ends all in good order (SIGTERM), workers first; returns a line for each that would not.
    pub(crate) async fn stop(mut self) -> Vec<String> {
        let mut all: Vec<Process> = self.workers.drain(..).collect();
        all.push(self.serve);
        let mut problems = Vec::new();
        for process in &mut all {
            process.was_young = process.started_at.elapsed() < YOUNG;
            process.terminate().await;
        }
        for mut process in all {
            match timeout(END_WAIT, process.child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                // One that has only just been started does not listen to signals yet, and has nothing in hand.
                Ok(Ok(status)) if status.signal() == Some(SIGTERM) && process.was_young => {}
                Ok(Ok(status)) => problems.push(format!("{} ended with {status} after SIGTERM", process.name)),
                Ok(Err(error)) => problems.push(format!("{}: {error}", process.name)),
                Err(_) => {
                    let _ = process.child.kill().await;
                    problems.push(format!("{} did not end within {END_WAIT:?} of SIGTERM", process.name));
                }
            }
        }
        problems
    }

    /// The end of a process' log, for an error message.
    pub(crate) fn log_tail(&self, name: &str) -> String {
        let path = log_path(&self.dir, name);
        let text = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        format!("its log ({}) ends:\n{}", path.display(), lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
    }
}

impl Process {
    /// How it ended, if it has.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The standard library sends no signal but SIGKILL; the shell's `kill` does.
    async fn terminate(&self) {
        let sent =
            Command::new("/bin/sh").args(["-c", "kill -TERM \"$1\"", "kill", &self.pid.to_string()]).status().await;
        if let Err(error) = sent {
            tracing::warn!(process = self.name, %error, "A process could not be told to end.");
        }
    }
}

fn log_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.log"))
}

fn spawn(program: &Path, dir: &Path, config: &Path, command: &str, name: &str) -> anyhow::Result<Process> {
    let path = log_path(dir, name);
    let log = fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut process = Command::new(program);
    process
        .arg(command)
        .arg("--config")
        .arg(config)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true);
    // The run is its own world: settings of another installation, or a proxy, would lead out of it.
    for (variable, _) in env::vars_os() {
        let text = variable.to_string_lossy().to_ascii_uppercase();
        if text.starts_with("DISPATCHQ_") || text.ends_with("_PROXY") || text == "RUST_LOG" {
            process.env_remove(variable);
        }
    }
    let child = process.spawn().with_context(|| format!("cannot start {} {command}", program.display()))?;
    let pid = child.id().with_context(|| format!("{command} has no pid"))?;
    Ok(Process { name: name.to_owned(), pid, child, started_at: Instant::now(), was_young: false })
}
