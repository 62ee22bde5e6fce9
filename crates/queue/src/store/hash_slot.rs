//! Hash slots of Redis Cluster: the slot of a key, and the keys of a command.

use redis::{Arg, Cmd};

/// Number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Returns the slot of a key: a hash of its tag, the text between the first `{` and the next `}`, or of the whole key
/// if it has no tag. Source: Redis cluster specification, "Key distribution model".
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let tag = &key[open + 1..];
    match tag.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &tag[..close],
    }
}

/// Computes CRC-16/XMODEM, as the specification requires. A name has some thirty bytes, so no table is needed.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    })
}

/// Returns the slot that a command goes to, which is that of its first key. `None` if it names no key.
pub(super) fn slot_of(cmd: &Cmd) -> Option<u16> {
    keys_of(cmd).first().map(|key| key_slot(key))
}

/// Returns the slots of all keys that a command names, without duplicates. A cluster refuses a command with more than
/// one.
pub fn slots_of(cmd: &Cmd) -> Vec<u16> {
    let mut slots: Vec<u16> = keys_of(cmd).into_iter().map(key_slot).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// Returns the keys of a command. A command that is not listed here has one key, its first argument.
fn keys_of(cmd: &Cmd) -> Vec<&[u8]> {
    let mut words = cmd.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        _ => b"",
    });
    let name = words.next().unwrap_or_default().to_ascii_uppercase();
    match name.as_slice() {
        b"EVAL" | b"EVALSHA" | b"EVAL_RO" | b"EVALSHA_RO" => {
            let count = words.nth(1).and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
            words.take(count.unwrap_or(0)).collect()
        }
        b"DEL" | b"EXISTS" | b"MGET" | b"TOUCH" | b"UNLINK" => words.collect(),
        b"COPY" | b"RENAME" | b"RENAMENX" | b"SMOVE" => words.take(2).collect(),
        b"CLIENT" | b"CLUSTER" | b"CONFIG" | b"DBSIZE" | b"FLUSHALL" | b"INFO" | b"PING" | b"SCAN" | b"SCRIPT"
        | b"TIME" => Vec::new(),
        _ => words.take(1).collect(),
    }
}

#[cfg(test)]
mod tests {
    use redis::cmd;

    use super::*;

    /// Expected slots are those that a server returns (`CLUSTER KEYSLOT`).
    #[test]
    fn hash_slot_uses_tag_or_whole_key() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(key_slot(b"foo"), 12_182);
        assert_eq!(key_slot(b"{foo}:bar"), 12_182);
        assert_eq!(key_slot(b"x{foo}{bar}"), 12_182);
        assert_eq!(key_slot(b""), 0);
        for whole in ["{}foo", "{foo", "fo}o"] {
            assert_eq!(key_slot(whole.as_bytes()), crc16(whole.as_bytes()) % SLOTS, "{whole}");
        }
    }

    /// A key whose tag is the whole name of another key is in the same slot as that key.
    #[test]
    fn tag_of_whole_name_shares_its_slot() {
        assert_eq!(key_slot(b"dispatchq:busy:{waiting:order:A:TAXI}"), key_slot(b"waiting:order:A:TAXI"));
    }

    #[test]
    fn keys_are_found_for_each_command() {
        let named =
            |cmd: &Cmd| keys_of(cmd).iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>();
        assert_eq!(named(cmd("EVAL").arg("return 1").arg(2).arg("a").arg("b").arg("c")), ["a", "b"]);
        assert_eq!(named(cmd("EVALSHA").arg("0123").arg(0).arg("c")), Vec::<String>::new());
        assert_eq!(named(cmd("del").arg("a").arg("b")), ["a", "b"]);
        assert_eq!(named(cmd("SET").arg("a").arg("b").arg("NX")), ["a"]);
        assert_eq!(named(cmd("RENAME").arg("a").arg("b")), ["a", "b"]);
        assert_eq!(named(cmd("INFO").arg("server")), Vec::<String>::new());
    }

    #[test]
    fn command_across_slots_is_detected() {
        assert_eq!(slots_of(cmd("DEL").arg("{a}1").arg("{a}2")).len(), 1);
        assert_eq!(slots_of(cmd("DEL").arg("{a}1").arg("{b}2")).len(), 2);
        assert_eq!(slot_of(&cmd("PING")), None);
    }
}
