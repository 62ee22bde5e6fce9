//! `serve`, `work` and simulators as processes of this binary or, for two versions side by side, of another.
//!
//! They are direct children of this process. Until this process reaps a child, no other process can get its pid. So a
//! signal reaches either the started process or none. Each child has its own process group, so Ctrl-C in the terminal
//! reaches only this process, which ends the children in order.

use std::{
    env, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::{settings, watchdog::ProcessWatchdog};

/// Timeout for a process to end after SIGTERM, longer than a worker's drain.
const END_WAIT: Duration = Duration::from_secs(30);
/// Time after which a started process handles SIGTERM, also on a busy machine.
const YOUNG: Duration = Duration::from_secs(5);
const SIGTERM: i32 = 15;
const TAIL_LINES: usize = 15;
/// Log messages of `serve`, `work` and `run` when they have started.
const STARTED: [&str; 2] = ["Serving the API.", "The worker is running."];

/// Child processes. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct ChildProcesses {
    /// Binary of processes that are started from now on.
    program: PathBuf,
    dir: PathBuf,
    config: PathBuf,
    /// `serve` processes in the order of their addresses.
    serves: Vec<ChildProcess>,
    /// Workers, the longest running first.
    workers: Vec<ChildProcess>,
    /// Processes that `serve` and `work` call, such as a simulator.
    beside: Vec<ChildProcess>,
    workers_show_metrics: bool,
    /// Command of the API processes: `serve`, or `run` if there are no separate workers.
    api_command: &'static str,
    /// Numbers of processes started so far, for their names.
    serves_started: usize,
    workers_started: usize,
    kills: u64,
    watchdog: ProcessWatchdog,
}

/// Command of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildKind {
    Serve,
    Work,
}

/// A process that ended unexpectedly.
#[derive(Debug)]
pub(crate) struct EndedProcess {
    /// Its name, exit status, and the end of its log.
    pub(crate) line: String,
    pub(crate) had_started: bool,
    pub(crate) ran: Duration,
}

#[derive(Debug)]
struct ChildProcess {
    name: String,
    program: PathBuf,
    pid: u32,
    /// Address of `serve`, or of the metrics of `work` if it serves them.
    address: String,
    child: Child,
    started_at: Instant,
    /// Whether the process had only just started when it got SIGTERM.
    was_young: bool,
}

impl ChildProcesses {
    /// Starts a `serve` at each of these addresses, and the workers. With 0 workers it starts `run` at the addresses. Logs go to `dir`, which is removed if this process
    /// is killed.
    pub(crate) fn start(
        dir: &Path,
        config: &Path,
        addresses: &[String],
        workers: usize,
        workers_show_metrics: bool,
    ) -> anyhow::Result<Self> {
        let program = env::current_exe().context("cannot find the dispatchq binary that is running")?;
        let watchdog = ProcessWatchdog::start(dir).context("cannot start /bin/sh")?;
        let mut processes = Self {
            program,
            dir: dir.to_owned(),
            config: config.to_owned(),
            serves: Vec::new(),
            workers: Vec::new(),
            beside: Vec::new(),
            workers_show_metrics,
            api_command: if workers == 0 { "run" } else { "serve" },
            serves_started: 0,
            workers_started: 0,
            kills: 0,
            watchdog,
        };
        for address in addresses {
            processes.start_serve(address.clone())?;
        }
        for _ in 0..workers {
            processes.start_worker()?;
        }
        Ok(processes)
    }

    /// Uses this binary for processes that are started from now on. Running processes continue, and their replacements
    /// use the same binary as they did.
    pub(crate) fn use_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// Starts another `serve` at this address.
    pub(crate) fn start_serve(&mut self, address: String) -> anyhow::Result<()> {
        self.serves_started += 1;
        let number = self.serves_started;
        let name = if number == 1 { "serve".to_owned() } else { format!("serve-{number}") };
        let serve = self.spawn_process(self.program.clone(), self.api_command, &[], name, address)?;
        self.serves.push(serve);
        Ok(())
    }

    /// Starts another worker.
    pub(crate) fn start_worker(&mut self) -> anyhow::Result<()> {
        self.start_worker_of(self.program.clone())
    }

    fn start_worker_of(&mut self, program: PathBuf) -> anyhow::Result<()> {
        let address =
            if self.workers_show_metrics { format!("127.0.0.1:{}", settings::free_port()) } else { String::new() };
        self.start_worker_at(program, address)
    }

    /// Starts a worker with its metrics at this address. Empty: no metrics.
    fn start_worker_at(&mut self, program: PathBuf, address: String) -> anyhow::Result<()> {
        self.workers_started += 1;
        let worker = self.spawn_process(program, "work", &[], format!("work-{}", self.workers_started), address)?;
        self.workers.push(worker);
        Ok(())
    }

    /// Runs another command to its end, with its output in the log `name`. Fails unless it succeeds.
    pub(crate) async fn run_command(&mut self, command: &str, name: &str) -> anyhow::Result<()> {
        let mut process = self.spawn_process(self.program.clone(), command, &[], name.to_owned(), String::new())?;
        let ended = process.child.wait().await;
        self.watchdog.forget_pid(process.pid);
        let status = ended.with_context(|| format!("cannot wait for {name}"))?;
        anyhow::ensure!(status.success(), "{name} ended with {status}; {}", self.log_tail(name));
        Ok(())
    }

    /// Stops the longest running process of this binary gracefully (SIGTERM). Returns a problem if it does not end
    /// properly.
    pub(crate) async fn end_oldest(&mut self, kind: ChildKind, program: &Path) -> Option<String> {
        let of_kind = self.of_kind_mut(kind);
        let index = of_kind.iter().position(|process| process.program == program)?;
        let process = of_kind.remove(index);
        self.end_process(process).await
    }

    fn of_kind_mut(&mut self, kind: ChildKind) -> &mut Vec<ChildProcess> {
        match kind {
            ChildKind::Serve => &mut self.serves,
            ChildKind::Work => &mut self.workers,
        }
    }

    async fn end_process(&mut self, mut process: ChildProcess) -> Option<String> {
        let pid = process.pid;
        process.ask_to_end().await;
        let problem = process.wait_for_end().await;
        self.watchdog.forget_pid(pid);
        problem
    }

    /// Starts another command of this binary, which ends with the others. Its output goes to its log.
    pub(crate) fn start_beside(&mut self, command: &str, args: &[&str]) -> anyhow::Result<u32> {
        let beside = self.spawn_process(self.program.clone(), command, args, command.to_owned(), String::new())?;
        let pid = beside.pid;
        self.beside.push(beside);
        Ok(pid)
    }

    /// Starts a `serve` at the address of one that has ended.
    fn start_serve_again(&mut self, index: usize) -> anyhow::Result<()> {
        let ChildProcess { name, program, address, .. } = &self.serves[index];
        let (program, name, address) = (program.clone(), format!("{name}+"), address.clone());
        self.serves[index] = self.spawn_process(program, self.api_command, &[], name, address)?;
        Ok(())
    }

    /// Kills the longest running worker like a crash (SIGKILL), and starts another. Kills none while one is starting,
    /// because otherwise no worker would ever run on a slow machine.
    pub(crate) async fn kill_one(&mut self) -> anyhow::Result<()> {
        if self.workers.iter().all(|worker| self.has_started(&worker.name)) {
            self.kill(ChildKind::Work, 0).await?;
        }
        Ok(())
    }

    /// Kills a process like a crash (SIGKILL), and starts another at its address.
    pub(crate) async fn kill(&mut self, kind: ChildKind, index: usize) -> anyhow::Result<()> {
        let process = self.of_kind_mut(kind).get_mut(index).context("no such process")?;
        process.child.kill().await.with_context(|| format!("cannot kill {}", process.name))?;
        let pid = process.pid;
        self.watchdog.forget_pid(pid);
        self.kills += 1;
        match kind {
            ChildKind::Serve => self.start_serve_again(index),
            ChildKind::Work => {
                let worker = self.workers.remove(index);
                self.start_worker_at(self.program.clone(), worker.address)
            }
        }
    }

    /// Freezes a process (SIGSTOP), or resumes it (SIGCONT).
    pub(crate) async fn freeze(&mut self, kind: ChildKind, index: usize, frozen: bool) {
        if let Some(process) = self.of_kind_mut(kind).get(index) {
            process.send_signal(if frozen { "STOP" } else { "CONT" }).await;
        }
    }

    /// Returns the pid of the first `serve`.
    pub(crate) fn serve_pid(&self) -> u32 {
        self.serves.first().map_or(0, |serve| serve.pid)
    }

    pub(crate) fn serve_pids(&self) -> impl Iterator<Item = u32> {
        self.serves.iter().map(|serve| serve.pid)
    }

    pub(crate) fn worker_pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().map(|worker| worker.pid)
    }

    /// Returns the address of each `serve`, such as `127.0.0.1:8080`, the longest running first.
    pub(crate) fn serve_addresses(&self) -> Vec<String> {
        self.serves.iter().map(|serve| serve.address.clone()).collect()
    }

    /// Returns the address of the longest running `serve` of this binary.
    pub(crate) fn oldest_serve_of(&self, program: &Path) -> Option<&str> {
        self.serves.iter().find(|serve| serve.program == program).map(|serve| serve.address.as_str())
    }

    /// Returns the names of the workers, and the addresses of their metrics.
    pub(crate) fn worker_metrics(&self) -> Vec<(String, String)> {
        self.workers.iter().map(|worker| (worker.name.clone(), worker.address.clone())).collect()
    }

    pub(crate) fn kill_count(&self) -> u64 {
        self.kills
    }

    /// Replaces `serve` and `work` processes that ended unexpectedly. Returns a line for each.
    pub(crate) fn replace_ended(&mut self) -> anyhow::Result<Vec<String>> {
        Ok(self.replace_those_that_ended()?.into_iter().map(|process| process.line).collect())
    }

    /// Replaces processes like [`replace_ended`](Self::replace_ended). Also returns whether each of them had started.
    pub(crate) fn replace_those_that_ended(&mut self) -> anyhow::Result<Vec<EndedProcess>> {
        let mut ended = Vec::new();
        for index in 0..self.serves.len() {
            let serve = &mut self.serves[index];
            if let Some(status) = serve.exit_status() {
                self.watchdog.forget_pid(serve.pid);
                ended.push(self.describe_end(&self.serves[index], status));
                self.start_serve_again(index)?;
            }
        }
        for index in (0..self.workers.len()).rev() {
            if let Some(status) = self.workers[index].exit_status() {
                let worker = self.workers.remove(index);
                self.watchdog.forget_pid(worker.pid);
                ended.push(self.describe_end(&worker, status));
                self.start_worker_of(worker.program)?;
            }
        }
        // A simulator is not replaced, because its state is lost.
        for index in (0..self.beside.len()).rev() {
            if let Some(status) = self.beside[index].exit_status() {
                let process = self.beside.remove(index);
                self.watchdog.forget_pid(process.pid);
                ended.push(EndedProcess { had_started: true, ..self.describe_end(&process, status) });
            }
        }
        Ok(ended)
    }

    fn describe_end(&self, ChildProcess { name, started_at, .. }: &ChildProcess, status: ExitStatus) -> EndedProcess {
        EndedProcess {
            line: format!("{name} ended unexpectedly ({status}); {}", self.log_tail(name)),
            had_started: self.has_started(name),
            ran: started_at.elapsed(),
        }
    }

    /// Returns whether the log of this `serve` or `work` contains its start message.
    fn has_started(&self, name: &str) -> bool {
        let log = self.read_log(name);
        STARTED.iter().any(|line| log.contains(line))
    }

    /// Stops all processes gracefully (SIGTERM), workers first. Returns a line for each that does not end.
    pub(crate) async fn stop(mut self) -> Vec<String> {
        let mut all: Vec<ChildProcess> = self.workers.drain(..).collect();
        all.append(&mut self.serves);
        all.append(&mut self.beside);
        let mut problems = Vec::new();
        for process in &mut all {
            process.ask_to_end().await;
        }
        for process in all {
            problems.extend(process.wait_for_end().await);
        }
        problems
    }

    /// Returns the output of a process so far.
    pub(crate) fn read_log(&self, name: &str) -> String {
        let text = fs::read(log_path(&self.dir, name)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns the end of a process's log, for an error message.
    pub(crate) fn log_tail(&self, name: &str) -> String {
        let (path, text) = (log_path(&self.dir, name), self.read_log(name));
        let lines: Vec<&str> = text.lines().collect();
        format!("its log ({}) ends:\n{}", path.display(), lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
    }

    /// Starts a process. `address` is for `serve` and `work`; empty means none.
    fn spawn_process(
        &mut self,
        program: PathBuf,
        command: &str,
        args: &[&str],
        name: String,
        address: String,
    ) -> anyhow::Result<ChildProcess> {
        let path = log_path(&self.dir, &name);
        let log = fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut process = Command::new(&program);
        process
            .arg(command)
            .arg("--config")
            .arg(&self.config)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true);
        clear_settings(&mut process);
        let setting = if command == self.api_command { "DISPATCHQ_HTTP__BIND" } else { "DISPATCHQ_WORKER__ADMIN_BIND" };
        if !address.is_empty() {
            process.env(setting, &address);
        }
        let child = process.spawn().with_context(|| format!("cannot start {} {command}", program.display()))?;
        let pid = child.id().with_context(|| format!("{command} has no pid"))?;
        self.watchdog.watch_pid(pid);
        Ok(ChildProcess { name, program, pid, address, child, started_at: Instant::now(), was_young: false })
    }
}

impl ChildProcess {
    /// Returns the exit status if the process has ended.
    fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM.
    async fn ask_to_end(&mut self) {
        self.was_young = self.started_at.elapsed() < YOUNG;
        self.send_signal("TERM").await;
    }

    /// Waits until a process that got SIGTERM has ended. Returns a problem if it does not end properly.
    async fn wait_for_end(mut self) -> Option<String> {
        match timeout(END_WAIT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => None,
            // A process that has only just started does not handle SIGTERM yet, and has no work.
            Ok(Ok(status)) if status.signal() == Some(SIGTERM) && self.was_young => None,
            Ok(Ok(status)) => Some(format!("{} ended with {status} after SIGTERM", self.name)),
            Ok(Err(error)) => Some(format!("{}: {error}", self.name)),
            Err(_) => {
                let _ = self.child.kill().await;
                Some(format!("{} did not end within {END_WAIT:?} of SIGTERM", self.name))
            }
        }
    }

    /// Sends a signal such as `TERM` with the shell's `kill`, because the standard library can only send SIGKILL.
    async fn send_signal(&self, name: &str) {
        let script = format!("kill -{name} \"$1\"");
        let sent = Command::new("/bin/sh").args(["-c", &script, "kill", &self.pid.to_string()]).status().await;
        if let Err(error) = sent {
            tracing::warn!(process = self.name, %error, "SIG{name} could not be sent to a process.");
        }
    }
}

/// Removes settings and proxies from the environment of a process. Inherited values could connect it to another
/// installation.
pub(crate) fn clear_settings(process: &mut Command) {
    for (variable, _) in env::vars_os() {
        let text = variable.to_string_lossy().to_ascii_uppercase();
        if text.starts_with("DISPATCHQ_") || text.ends_with("_PROXY") || text == "RUST_LOG" {
            process.env_remove(variable);
        }
    }
}

fn log_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.log"))
}
