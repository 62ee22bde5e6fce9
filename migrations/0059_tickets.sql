-- What a ticket system calls the ticket that a message opened there, so that pages lead to it. Programs of the version before leave it
-- null: their tickets have no link.

ALTER TABLE outbox ADD COLUMN ticket text;
-- Not looked up in the rows there are, for none of them has a ticket.
ALTER TABLE outbox ADD CONSTRAINT outbox_ticket_length CHECK (octet_length(ticket) BETWEEN 1 AND 128) NOT VALID;
COMMENT ON COLUMN outbox.ticket IS 'the id that the ticket system answered; null: it opened none, or did not say which';
