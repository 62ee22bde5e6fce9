-- Why a queue was stopped. A version that does not know this column writes none.
ALTER TABLE paused_queues ADD COLUMN reason text CHECK (octet_length(reason) BETWEEN 1 AND 2000);
