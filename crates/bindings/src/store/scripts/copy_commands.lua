-- Appends the commands of a binding to the stream of commands, in a cluster.
--
-- KEYS    1 wrk:cmd
-- ARGV    1 JSON of the binding, 2 maximum length of wrk:cmd
-- RETURNS the number of commands added
-- BOUND   the commands of one change

local b = cjson.decode(ARGV[1])
for _, c in ipairs(b.commands) do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'binding_id', b.id, 'command', c.command, 'reason', c.reason,
    'actor', c.actor, 'at', c.at)
end
return #b.commands
