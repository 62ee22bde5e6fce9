//! Tickets that messages opened in ticket systems. A row stores only the ticket's id. The web address is built from the
//! present configuration of the channel.

use std::collections::HashMap;

use model::{ids::TicketId, messages::MANUAL_REFUND_REQUIRED};
use serde::{Deserialize, Serialize};

use crate::channels::MessageChannels;
use foundation::db::Pool;

/// A ticket that an alert opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AlertTicket {
    /// Channel that opened the ticket.
    pub channel: String,
    /// Id in the ticket system.
    #[schema(value_type = String)]
    pub ticket: TicketId,
    /// Web address of the ticket; absent if the channel has no `ticket_url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub url: Option<String>,
}

impl AlertTicket {
    pub(super) fn link_ticket(&mut self, channels: &MessageChannels) {
        self.url = channels.link_to_ticket(&self.channel, &self.ticket);
    }
}

#[derive(sqlx::FromRow)]
struct TicketRow {
    order_id: String,
    channel: String,
    ticket: TicketId,
}

/// Returns the refund tickets of these orders by order id, oldest first.
pub async fn list_refund_tickets(
    db: &Pool,
    channels: &MessageChannels,
    orders: &[&str],
) -> Result<HashMap<String, Vec<AlertTicket>>, sqlx::Error> {
    let mut by_order: HashMap<String, Vec<AlertTicket>> = HashMap::new();
    if orders.is_empty() {
        return Ok(by_order);
    }
    let rows: Vec<TicketRow> = sqlx::query_as(
        "-- tickets of refunds
         SELECT order_id, channel, ticket FROM outbox
         WHERE order_id = ANY ($1) AND kind = $2 AND ticket IS NOT NULL ORDER BY id",
    )
    .bind(orders)
    .bind(MANUAL_REFUND_REQUIRED)
    .fetch_all(db)
    .await?;
    for TicketRow { order_id, channel, ticket } in rows {
        let mut ticket = AlertTicket { channel, ticket, url: None };
        ticket.link_ticket(channels);
        by_order.entry(order_id).or_default().push(ticket);
    }
    Ok(by_order)
}
