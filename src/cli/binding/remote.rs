//! `dispatchq binding` over the API.

use std::process::ExitCode;

use model::binding::BindingVerb;
use serde_json::Value;

use super::{
    Command, FilterArgs, HEADINGS, ListArgs, NO_BINDINGS, explain, print_binding_view, print_deleted, tell_unreadable,
};
use crate::cli::{
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time},
    },
};

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(args) => print_listing(api, args).await?,
            Self::Show { id, json } => {
                print_binding_view(&api.get(&["bindings", id.as_str()], &[]).await?, json)?;
            }
            Self::Start(args) => return args.run_over_api(api, BindingVerb::Start).await,
            Self::Pause(args) => return args.run_over_api(api, BindingVerb::Pause).await,
            Self::Resume(args) => return args.run_over_api(api, BindingVerb::Resume).await,
            Self::Stop(args) => return args.run_over_api(api, BindingVerb::Stop).await,
            Self::Create(args) => args.run_over_api(api).await?,
            Self::Delete { id } => {
                let deleted = api.delete(&["bindings", id.as_str()]).await?;
                print_deleted(&id, deleted["changed"] == true);
            }
            Self::Otp(args) => args.run_over_api(api).await?,
            Self::Transactions(args) => args.run_over_api(api).await?,
            Self::Explain { id, json } => {
                explain::print_explanation(&api.get(&["bindings", id.as_str(), "explain"], &[]).await?, json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn print_listing(api: &ApiClient, args: ListArgs) -> anyhow::Result<()> {
    let FilterArgs { server, account, state } = args.filter;
    let mut query = Vec::new();
    query.extend(server.map(|server| ("server_id", server.to_string())));
    query.extend(account.map(|account| ("account_id", account.to_string())));
    query.extend(state.map(|state| ("state", state.to_string())));
    query.extend(args.after.map(|after| ("cursor", after.to_string())));
    let names = PageNames::of("bindings");
    let most = usize::try_from(args.limit)?;
    let ListedItems { items, unreadable, page } = api.list(&["bindings"], &query, names, most).await?;
    unreadable.iter().for_each(|row| tell_unreadable(&show_field(row, "id"), &show_field(row, "error")));
    if args.json {
        return output::print_json(&items);
    }
    output::print_rows(&HEADINGS, items.iter().map(format_binding), NO_BINDINGS);
    if let Some(last) = page[names.next].as_str() {
        output::print_note(&format!("More of them: --after {last}"));
    }
    Ok(())
}

fn format_binding(b: &Value) -> [String; 9] {
    let state = match b["reason"].as_str() {
        Some(why) => format!("{} ({why})", show_field(b, "state")),
        None => show_field(b, "state"),
    };
    [
        show_field(b, "id"),
        show_field(b, "server_id"),
        show_field(b, "account_id"),
        state,
        show_field(b, "phase"),
        show_field(b, "cycle"),
        show_time(b, "next_at"),
        show_field(b, "failures"),
        show_field(b, "unresolved"),
    ]
}
