//! This version on the schema of the previous release. `process::bench_upgrade` and the wire format of `jobs` test the
//! rest of an upgrade.
//!
//! `tests/upgrade/migrations` contains the checksums of the release's migrations.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use servers::PostgresServer;
use sqlx::{
    Connection, PgConnection,
    migrate::{Migration, Migrator},
};

/// Returns the checksums of the previous release's migrations, by number, as `sha384sum` wrote them.
async fn previous_migrations() -> BTreeMap<i64, String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade/migrations");
    let text = fs::read_to_string(file).unwrap();
    let line = |line: &str| {
        let (checksum, file) = line.split_once("  ").unwrap();
        (file.split_once('_').unwrap().0.parse().unwrap(), checksum.to_owned())
    };
    text.lines().map(line).collect()
}

fn checksum(migration: &Migration) -> String {
    migration.checksum.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn migrations() -> Vec<Migration> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    Migrator::new(folder).await.unwrap().iter().cloned().collect()
}

/// Properties of a schema on which a program depends.
#[derive(Debug)]
struct SchemaPromises {
    /// Tables, columns with their types, columns that may be null, functions.
    facts: BTreeSet<String>,
    /// Required columns of an insert, with their table.
    demands: BTreeSet<(String, String)>,
}

impl SchemaPromises {
    async fn read(db: &mut PgConnection) -> Self {
        let facts: Vec<String> = sqlx::query_scalar(
            "SELECT format('table %s', table_name) FROM information_schema.tables WHERE table_schema = 'public'
             UNION ALL
             SELECT format('column %s.%s %s', table_name, column_name, udt_name)
             FROM information_schema.columns WHERE table_schema = 'public'
             UNION ALL
             SELECT format('null in %s.%s', table_name, column_name)
             FROM information_schema.columns WHERE table_schema = 'public' AND is_nullable = 'YES'
             UNION ALL
             SELECT format('function %s', proname) FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
        )
        .fetch_all(&mut *db)
        .await
        .unwrap();
        let demands: Vec<(String, String)> = sqlx::query_as(
            "SELECT table_name::text, column_name::text FROM information_schema.columns
             WHERE table_schema = 'public' AND is_nullable = 'NO' AND column_default IS NULL
               AND is_identity = 'NO' AND is_generated = 'NEVER'",
        )
        .fetch_all(&mut *db)
        .await
        .unwrap();
        Self { facts: facts.into_iter().collect(), demands: demands.into_iter().collect() }
    }

    /// Returns the properties that a program needs and a later schema lacks.
    fn broken_by(&self, later: &Self) -> Vec<String> {
        let mut broken: Vec<String> = self.facts.difference(&later.facts).map(|fact| format!("gone: {fact}")).collect();
        let new_demands = later.demands.difference(&self.demands);
        let in_old_tables = new_demands.filter(|(table, _)| self.facts.contains(&format!("table {table}")));
        broken.extend(in_old_tables.map(|(table, column)| format!("demanded: {table}.{column}")));
        broken
    }
}

#[tokio::test]
async fn released_migrations_have_not_changed() {
    let now: BTreeMap<i64, String> = migrations().await.iter().map(|m| (m.version, checksum(m))).collect();
    let before = previous_migrations().await;
    let newest = *before.keys().max().unwrap();
    for (version, checksum) in &before {
        assert_eq!(now.get(version), Some(checksum), "migration {version} was released and must not change");
    }
    let between: Vec<&i64> = now.keys().filter(|v| **v < newest && !before.contains_key(*v)).collect();
    assert!(between.is_empty(), "{between:?} would be applied after {newest}, which was released");
}

#[tokio::test]
async fn migrations_since_the_release_only_add() {
    let postgres = PostgresServer::start().await.unwrap();
    let mut db = PgConnection::connect(&postgres.url()).await.unwrap();
    let before = previous_migrations().await;
    let (old, new): (Vec<Migration>, Vec<Migration>) =
        migrations().await.into_iter().partition(|migration| before.contains_key(&migration.version));
    Migrator::with_migrations(old.clone()).run(&mut db).await.unwrap();
    let promises = SchemaPromises::read(&mut db).await;
    // The name of a contract migration states the versions that it excludes.
    let adding = new.into_iter().filter(|migration| !migration.description.starts_with("contract "));
    Migrator::with_migrations(old.into_iter().chain(adding).collect()).run(&mut db).await.unwrap();
    let kept = SchemaPromises::read(&mut db).await;
    assert_eq!(promises.broken_by(&kept), Vec::<String>::new());

    let breaches = [
        ("ALTER TABLE drivers RENAME COLUMN lat TO latitude", "gone: column drivers.lat float8"),
        ("ALTER TABLE orders ALTER COLUMN customer_id SET NOT NULL", "gone: null in orders.customer_id"),
        ("ALTER TABLE drivers ADD COLUMN shoe_size int NOT NULL", "demanded: drivers.shoe_size"),
        ("ALTER FUNCTION dispatchq_now() RENAME TO dispatchq_time", "gone: function dispatchq_now"),
    ];
    for (statement, breach) in breaches {
        let mut change = db.begin().await.unwrap();
        sqlx::query(statement).execute(&mut *change).await.unwrap();
        let changed = SchemaPromises::read(&mut change).await;
        change.rollback().await.unwrap();
        assert!(promises.broken_by(&changed).contains(&breach.to_owned()), "{statement}");
    }
}
