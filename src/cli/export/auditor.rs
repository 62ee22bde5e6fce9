//! Session that reads the `audit_` views with the rights of the role `dispatchq_auditor`.

use std::{ops::Range, pin::pin, time::Duration};

use anyhow::{Context, ensure};
use chrono::{DateTime, Utc};
use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, error::DatabaseError};
use tokio::time::timeout;

use super::{
    cells::{CellValue, Column},
    views::View,
};
use foundation::{config::database::DatabaseConfig, db};

const ROLE: &str = "dispatchq_auditor";
/// Maximum wait for a row. Before the first row Postgres may read a whole table.
const ROW_WAIT: Duration = Duration::from_mins(10);
const UNDEFINED_ROLE: &str = "22023";
const FORBIDDEN: &str = "42501";

/// One read-only transaction: all statements see the same state. It is never committed.
#[derive(Debug)]
pub(super) struct Auditor(PgConnection);

impl Auditor {
    /// Connects with `database.url`. Any login that may become [`ROLE`] is accepted, and has only its rights from then
    /// on.
    pub(super) async fn connect(config: &DatabaseConfig) -> anyhow::Result<Self> {
        db::check_reachable(config).await?;
        // A pooler refuses startup parameters that it does not know.
        let options = config.connect_options()?.application_name("dispatchq export").extra_float_digits(None);
        let mut connection = options.connect().await.context("cannot connect to Postgres")?;
        // A view is read for as long as it takes.
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0";
        sqlx::raw_sql(begin).execute(&mut connection).await?;
        let become_auditor = AssertSqlSafe(format!("SET LOCAL ROLE {ROLE}"));
        if let Err(error) = sqlx::raw_sql(become_auditor).execute(&mut connection).await {
            return Err(explain_refusal(error, options.get_username()));
        }
        Ok(Self(connection))
    }

    /// Returns an error if this time is in the future.
    pub(super) async fn require_past(&mut self, end: DateTime<Utc>) -> anyhow::Result<()> {
        let now = db::database_now(&mut self.0).await?;
        ensure!(end <= now, "the day ends at {end:?}, and it is {now:?} now; export it after its end");
        Ok(())
    }

    pub(super) async fn list_columns(&mut self, view: &View) -> anyhow::Result<Vec<Column>> {
        let found: Vec<(String, String)> = sqlx::query_as(
            "-- columns of a view
             SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute
             WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        )
        .persistent(false)
        .bind(view.name)
        .fetch_all(&mut self.0)
        .await?;
        ensure!(!found.is_empty(), "the database has no such view; run: dispatchq migrate");
        Ok(found.into_iter().map(|(name, sql_type)| Column::new(name, &sql_type)).collect())
    }

    /// Passes each row of a view in `span` to `take`, while Postgres sends them.
    pub(super) async fn read_rows(
        &mut self,
        view: &View,
        columns: &[Column],
        span: Range<DateTime<Utc>>,
        mut take: impl FnMut(Vec<CellValue>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let expressions: Vec<String> = columns.iter().map(Column::expression).collect();
        let View { name, day_column } = view;
        let statement =
            format!("SELECT {} FROM {name} WHERE {day_column} >= $1 AND {day_column} < $2", expressions.join(", "));
        let query = sqlx::query(AssertSqlSafe(statement)).persistent(false).bind(span.start).bind(span.end);
        let mut rows = pin!(query.fetch(&mut self.0));
        loop {
            let row = timeout(ROW_WAIT, rows.try_next()).await.context("Postgres sent no row for 10 minutes")?;
            let Some(row) = row.map_err(explain_missing_right)? else { return Ok(()) };
            let cells: Result<Vec<CellValue>, _> =
                columns.iter().enumerate().map(|(index, column)| column.read_cell(&row, index)).collect();
            take(cells?)?;
        }
    }
}

fn code_of(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(DatabaseError::code).unwrap_or_default().into_owned()
}

fn explain_refusal(error: sqlx::Error, login: &str) -> anyhow::Error {
    let text = match code_of(&error).as_str() {
        UNDEFINED_ROLE => format!(
            "there is no role {ROLE}; create the roles: psql -v ON_ERROR_STOP=1 -f deploy/postgres/roles.sql DATABASE"
        ),
        FORBIDDEN => {
            format!("the login {login} may not become {ROLE}; point DISPATCHQ_DATABASE__URL to the login {ROLE}")
        }
        _ => format!("cannot become {ROLE}"),
    };
    anyhow::Error::from(error).context(text)
}

fn explain_missing_right(error: sqlx::Error) -> anyhow::Error {
    if code_of(&error) == FORBIDDEN {
        let text = format!("{ROLE} may not read it; run deploy/postgres/roles.sql again, as after each migrate");
        return anyhow::Error::from(error).context(text);
    }
    error.into()
}
