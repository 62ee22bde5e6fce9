//! Life cycle of real servers: ready, stopped, killed, restarted, dropped, orphaned, detached.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use servers::{DetachedServer, PostgresServer, RedisServer, ServerError};

/// Returns the answer to one inline command.
fn redis(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    write!(stream, "{command}\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.trim_end_matches("+OK\r\n").trim().to_owned()
}

/// Opens a connection to the database `dispatchq`, so that Postgres has a backend to end.
fn connect(postgres: &PostgresServer) -> TcpStream {
    let parameters = b"\0\x03\0\0user\0dispatchq\0database\0dispatchq\0\0";
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, postgres.port())).unwrap();
    stream.write_all(&u32::try_from(parameters.len() + 4).unwrap().to_be_bytes()).unwrap();
    stream.write_all(parameters).unwrap();
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"R", "asks for the password");
    stream
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap())
}

/// Returns whether the process exists. A zombie counts as alive.
fn is_alive(pid: u32) -> bool {
    kill(pid_of(pid), None).is_ok()
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within 15 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns whether the process has ended. An orphan may stay a zombie where the init process reaps no orphans, as in
/// some containers.
fn has_ended(pid: u32) -> bool {
    let is_zombie = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'));
    !is_alive(pid) || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(is_zombie)
}

async fn already_exists(postgres: &PostgresServer, name: &str) -> bool {
    postgres.fresh_database(name).await.is_err_and(|error| error.to_string().contains("already exists"))
}

#[tokio::test]
async fn redis_persists_data_and_never_evicts() {
    let server = RedisServer::start().await.unwrap();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}/", server.port()));
    assert_eq!(redis(server.port(), "PING"), "+PONG");
    for (setting, value) in [
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("maxmemory-policy", "noeviction"),
        ("save", ""),
        ("bind", "127.0.0.1"),
    ] {
        let answer = redis(server.port(), &format!("CONFIG GET {setting}"));
        assert_eq!(answer.lines().nth(4).unwrap_or_default(), value, "{setting}: {answer:?}");
    }
}

#[tokio::test]
async fn redis_data_outlives_stop_and_kill() {
    let mut server = RedisServer::start().await.unwrap();
    let (port, first) = (server.port(), server.pid());
    redis(port, "SET a 1");
    server.stop().await.unwrap();
    assert!(!is_alive(first));
    server.restart().await.unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), first);

    redis(port, "SET b 2");
    server.kill().await;
    assert!(!is_alive(server.pid()));
    server.restart().await.unwrap();
    assert_eq!(redis(port, "GET a"), "$1\r\n1");
    assert_eq!(redis(port, "GET b"), "$1\r\n2");
}

#[tokio::test]
async fn postgres_data_outlives_stop_and_kill() {
    let mut server = PostgresServer::start().await.unwrap();
    let (port, first) = (server.port(), server.pid());
    let url = server.url();
    assert!(
        url.starts_with("postgres://dispatchq:") && url.ends_with(&format!("@127.0.0.1:{port}/dispatchq")),
        "{url}"
    );
    assert!(already_exists(&server, "dispatchq").await);
    let url = server.fresh_database("one").await.unwrap();
    let _open = connect(&server);
    assert!(url.ends_with(&format!("@127.0.0.1:{port}/one")), "{url}");
    server.stop().await.unwrap();
    assert!(!is_alive(first));
    server.restart().await.unwrap();
    assert!(already_exists(&server, "one").await);

    server.fresh_database("two").await.unwrap();
    let _open = connect(&server);
    server.kill().await;
    assert!(!is_alive(server.pid()));
    server.restart().await.unwrap();
    assert_eq!(server.port(), port);
    assert!(already_exists(&server, "two").await);
}

#[tokio::test]
async fn template_copies_are_independent() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::sync::atomic::AtomicU32::new(0);
    let copy = async || {
        let count = async |_: String| {
            made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        PostgresServer::start_copy(folder.path(), "test", count).await.unwrap()
    };
    let (one, two) = (copy().await, copy().await);
    assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 1);
    let add_table = async |server: &PostgresServer| server.run_statement("CREATE TABLE mine ()").await;
    add_table(&one).await.unwrap();
    assert!(add_table(&one).await.is_err_and(|error| error.to_string().contains("already exists")));
    add_table(&two).await.unwrap();
    let dir = two.dir().to_owned();
    drop(two);
    let templates = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let [template] = templates.filter(|path| path.is_dir()).collect::<Vec<_>>().try_into().unwrap();
    assert!(!dir.exists() && template.join("data/PG_VERSION").exists());
    assert_eq!(
        std::fs::metadata(template).unwrap().permissions().mode() & 0o077,
        0,
        "the password is for no other user"
    );
}

#[tokio::test]
async fn failed_template_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let fail = async |_: String| Err(ServerError::Missing { programs: vec!["test"], cure: "none".to_owned() });
    let error = PostgresServer::start_prepared(folder.path(), "test", fail).await.unwrap_err();
    assert!(matches!(&error, ServerError::Missing { programs, .. } if programs == &["test"]), "{error}");
    let server = PostgresServer::start_prepared(folder.path(), "test", async |_: String| Ok::<(), ServerError>(()));
    server.await.unwrap().run_statement("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn dropped_server_leaves_no_process_or_data() {
    let (redis, postgres) = (RedisServer::start().await.unwrap(), PostgresServer::start().await.unwrap());
    let _open = connect(&postgres);
    let left = [(redis.pid(), redis.dir().to_owned()), (postgres.pid(), postgres.dir().to_owned())];
    drop((redis, postgres));
    for (pid, dir) in left {
        assert!(!is_alive(pid), "{}", dir.display());
        assert!(!dir.exists(), "{}", dir.display());
    }
}

#[tokio::test]
async fn externally_killed_server_is_noticed() {
    let mut server = RedisServer::start().await.unwrap();
    kill(pid_of(server.pid()), Signal::SIGKILL).unwrap();
    server.stop().await.unwrap();
    server.restart().await.unwrap();
    assert_eq!(redis(server.port(), "PING"), "+PONG");
}

#[tokio::test]
async fn frozen_server_can_be_killed_and_dropped() {
    let mut redis = RedisServer::start().await.unwrap();
    kill(pid_of(redis.pid()), Signal::SIGSTOP).unwrap();
    redis.kill().await;
    assert!(!is_alive(redis.pid()));

    let postgres = PostgresServer::start().await.unwrap();
    let pid = postgres.pid();
    kill(pid_of(pid), Signal::SIGSTOP).unwrap();
    drop(postgres);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn parallel_servers_get_different_ports() {
    let (a, b, c, d) =
        tokio::try_join!(RedisServer::start(), RedisServer::start(), PostgresServer::start(), PostgresServer::start())
            .unwrap();
    let mut ports = vec![a.port(), b.port(), c.port(), d.port()];
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 4);
}

#[tokio::test]
async fn databases_are_created_in_parallel() {
    let server = PostgresServer::start().await.unwrap();
    let (a, b) = tokio::join!(server.fresh_database("a"), server.fresh_database("b"));
    assert_ne!(a.unwrap(), b.unwrap());
}

#[tokio::test]
async fn taken_port_error_names_the_cure() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let errors = [
        RedisServer::start_in(&dir.path().join("redis"), Some(port)).await.unwrap_err(),
        PostgresServer::start_in(&dir.path().join("postgres"), Some(port)).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, ServerError::PortTaken { port: taken, .. } if taken == port), "{error}");
        assert!(error.to_string().contains("stop what listens there, or choose another port"), "{error}");
    }
}

#[tokio::test]
async fn failed_start_shows_last_log_lines() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("appendonlydir"), "not a directory").unwrap();
    let error = RedisServer::start_in(dir.path(), None).await.unwrap_err();
    assert!(matches!(error, ServerError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("appendonlydir"), "{error}");
}

// Rule F41: The port of a private Redis requires a password, its files have mode 0600, and its URL works.
#[tokio::test]
async fn private_redis_asks_for_password() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("redis");
    let server = RedisServer::start_private_in(&home, None).await.unwrap();
    let url = server.url();
    let password = url.strip_prefix("redis://:").and_then(|rest| rest.split_once('@')).unwrap().0.to_owned();
    assert!(redis(server.port(), "SET a 1").starts_with("-NOAUTH"));
    assert_eq!(redis(server.port(), &format!("AUTH {password}\r\nSET a 1\r\nGET a")), "+OK\r\n+OK\r\n$1\r\n1");
    let arguments = std::fs::read(format!("/proc/{}/cmdline", server.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains(&password), "every user sees the arguments");
    assert_eq!(mode(server.dir()), 0o700);
    for file in std::fs::read_dir(server.dir().join("appendonlydir")).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
    assert_eq!([mode(&server.dir().join("redis.conf")), mode(&server.dir().join("password"))], [0o600; 2]);
    drop(server);
    let again = RedisServer::start_private_in(&home, None).await.unwrap();
    assert!(again.url().contains(&password), "the password stays");
}

#[tokio::test]
async fn kept_data_serves_one_server_at_a_time() {
    // A directory below one that is closed to other users, like a home directory.
    let dir = tempfile::tempdir().unwrap();
    let (redis_dir, postgres_dir) = (dir.path().join("redis"), dir.path().join("with space"));
    let first = RedisServer::start_in(&redis_dir, None).await.unwrap();
    redis(first.port(), "SET a 1");
    let error = RedisServer::start_in(&redis_dir, None).await.unwrap_err();
    assert!(matches!(error, ServerError::InUse { .. }), "{error}");
    drop(first);
    let again = RedisServer::start_in(&redis_dir, None).await.unwrap();
    assert_eq!(redis(again.port(), "GET a"), "$1\r\n1");

    let first = PostgresServer::start_in(&postgres_dir, None).await.unwrap();
    first.fresh_database("kept").await.unwrap();
    drop(first);
    let again = PostgresServer::start_in(&postgres_dir, None).await.unwrap();
    assert!(already_exists(&again, "kept").await);
    drop(again);
    // Under root the data is in another directory, which would stay.
    std::fs::remove_dir_all(postgres_dir.join("data").canonicalize().unwrap()).unwrap();
}

#[tokio::test]
async fn detached_server_keeps_running() {
    let (redis_server, postgres) = (RedisServer::start().await.unwrap(), PostgresServer::start().await.unwrap());
    let port = redis_server.port();
    let left: [DetachedServer; 2] = [redis_server.detach(), postgres.detach()];
    assert_eq!(redis(port, "PING"), "+PONG");
    for DetachedServer { pid, dir, url } in left {
        assert!(dir.exists(), "{url}");
        kill(pid_of(pid), Signal::SIGINT).unwrap();
        wait_until("a detached server ends", || has_ended(pid));
        std::fs::remove_dir_all(dir).unwrap();
    }
}

/// Runs this test binary again as the owner that is killed. The owner prints the servers' pids and directories, and
/// waits.
#[tokio::test]
async fn servers_end_when_their_owner_is_killed() {
    const OWNER: &str = "SERVERS_TEST_OWNER";
    if std::env::var_os(OWNER).is_some() {
        let (redis, postgres) = (RedisServer::start().await.unwrap(), PostgresServer::start().await.unwrap());
        println!("\nserver {} {}", redis.pid(), redis.dir().display());
        println!("server {} {}", postgres.pid(), postgres.dir().display());
        std::future::pending::<()>().await;
    }

    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "servers_end_when_their_owner_is_killed", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let servers: Vec<String> =
        lines.filter_map(|line| line.strip_prefix("server ").map(str::to_owned)).take(2).collect();
    owner.kill().unwrap();
    owner.wait().unwrap();

    assert_eq!(servers.len(), 2);
    for server in servers {
        let (pid, dir) = server.split_once(' ').unwrap();
        wait_until("an orphaned server ends", || has_ended(pid.parse().unwrap()));
        wait_until("its throw-away data goes", || !Path::new(dir).exists());
    }
}

/// Runs a trivial query with psql at this URL. Returns whether it succeeded, and the error output.
fn psql(url: &str) -> (bool, String) {
    let dirs = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut programs: Vec<_> = dirs.map(|dir| dir.path().join("bin/psql")).filter(|path| path.exists()).collect();
    programs.push("psql".into());
    let output = Command::new(&programs[0])
        .args(["--no-psqlrc", "--no-password", "--tuples-only", "--no-align", "--command", "SELECT 1", url])
        .env_remove("PGPASSWORD")
        .env("PGPASSFILE", "/dev/null")
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn lets_in_with_the_password_alone(server: &PostgresServer) {
    let url = server.url();
    let (login, rest) = url.strip_prefix("postgres://").unwrap().split_once('@').unwrap();
    let (user, password) = login.split_once(':').unwrap();
    assert!(password.len() >= 32, "{password}");
    assert!(psql(&url).0, "{url}");
    for wrong in [format!("postgres://{user}@{rest}"), format!("postgres://{user}:wrong@{rest}")] {
        let (entered, said) = psql(&wrong);
        assert!(!entered, "{wrong}");
        assert!(said.contains("password"), "{said}");
    }
}

// Fault S18
#[tokio::test]
async fn postgres_asks_for_a_random_password() {
    let (one, another) = tokio::join!(PostgresServer::start(), PostgresServer::start());
    let (one, another) = (one.unwrap(), another.unwrap());
    lets_in_with_the_password_alone(&one);
    assert!(!psql(&one.url().replace(&one.port().to_string(), &another.port().to_string())).0, "each has its own");
}

// Fault S18
#[tokio::test]
async fn kept_data_keeps_its_password() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("postgres");
    let first = PostgresServer::start_in(&home, None).await.unwrap();
    lets_in_with_the_password_alone(&first);
    let login = first.url().split('@').next().unwrap().to_owned();
    drop(first);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(home.join("password")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    let again = PostgresServer::start_in(&home, None).await.unwrap();
    assert!(again.url().starts_with(&login));
    again.fresh_database("kept").await.unwrap();
    assert!(already_exists(&again, "kept").await);
    drop(again);
    std::fs::remove_dir_all(home.join("data").canonicalize().unwrap()).unwrap();
}
