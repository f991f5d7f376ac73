use std::io::Write;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use tidegate_core::{Charge, Charges};

use super::shard_tag;

/// The names of keys. A key is `prefix:policy:shape:{tag}`, followed by `:subject` if there is a
/// tenant.
///
/// In a key, `policy:shape` is the [state name] of the policy. For a policy without a name, it is
/// the text of the policy, which contains the shape.
///
/// [state name]: tidegate_core::Policy::state_name
///
/// The tag of a key determines its slot in a cluster. The tag is the tenant, or the subject if
/// there is no tenant. The characters `{`, `}`, `:` and `%` and all characters that are not
/// printable ASCII are written as `%` and two hexadecimal digits. An empty tag is written as `%`.
/// Therefore no two inputs share a key, and no input can choose its slot.
///
/// A policy with shards has a [share](tidegate_core::Policy::shares) for each shard. The key of a
/// share is the key of the policy, but its tag ends in `%.`, the number of shards, `.`, and two
/// characters that depend on the shard. Therefore the shards of a tenant are in different slots,
/// which are spread evenly over all slots.
///
/// ```
/// use tidegate_redis::{Charge, Policy};
/// use tidegate_redis::protocol::Keys;
///
/// let keys = Keys::new("tidegate");
/// let api: Policy = "api: fixed-window 10/1s".parse()?;
/// assert_eq!(keys.key(&Charge::new(&api, "alice")), b"tidegate:api:window.1s:{alice}");
/// let key = keys.key(&Charge::new(&api, "a:b").tenant("acme"));
/// assert_eq!(key, b"tidegate:api:window.1s:{acme}:a%3Ab");
///
/// let unnamed: Policy = "gcra 10/1s".parse()?;
/// let key = keys.key(&Charge::new(&unnamed, "alice"));
/// assert_eq!(key, b"tidegate:gcra%2010/1s%20burst%2010:{alice}");
///
/// let hot: Policy = "hot: fixed-window 10/1s shards 4".parse()?;
/// let share = &hot.shares()[0];
/// let key = keys.key(&Charge::new(share, "a").tenant("acme"));
/// assert_eq!(key, b"tidegate:hot:window.1s:{acme%.4.F9}:a");
/// # Ok::<(), tidegate_redis::PolicyError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Keys {
    /// The escaped prefix, followed by a colon.
    prefix: Vec<u8>,
}

impl Keys {
    /// Creates the names of keys that begin with `prefix`. The prefix can contain colons. Braces
    /// and characters that are not printable are escaped.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let mut escaped = vec![];
        for part in prefix.split_inclusive(':') {
            let (part, colon) = part.strip_suffix(':').map_or((part, ""), |part| (part, ":"));
            escape(part.as_bytes(), &mut escaped);
            escaped.extend_from_slice(colon.as_bytes());
        }
        escaped.push(b':');
        Self { prefix: escaped }
    }

    /// Returns `true` if the keys of two charges have the same tag, so that they are in the same
    /// slot.
    #[must_use]
    pub fn have_one_tag(one: &Charge<'_>, other: &Charge<'_>) -> bool {
        one.slot_key() == other.slot_key() && one.policy.shard() == other.policy.shard()
    }

    #[must_use]
    pub fn key(&self, charge: &Charge<'_>) -> Vec<u8> {
        let (policy, tag) = (charge.policy, charge.slot_key());
        let subject = charge.state_subject();
        let max_len = self.prefix.len() + policy.name().len() + tag.len() + subject.len() + 40;
        let mut key = Vec::with_capacity(max_len);
        key.extend_from_slice(&self.prefix);
        escape(policy.name().as_bytes(), &mut key);
        if policy.is_named() {
            let _ = write!(key, ":{}", policy.rule().shape());
        }
        put_tag(charge, &mut key);
        if !charge.tenant.is_empty() {
            key.push(b':');
            escape(subject, &mut key);
        }
        key
    }

    /// Returns the keys of the states of slots. These names are also the names of the channels on
    /// which scripts wake the calls that wait for the slots.
    #[must_use]
    pub fn keys_of_slots(&self, charges: Charges<'_>) -> Vec<Vec<u8>> {
        let slots = charges.iter().filter(|charge| charge.policy.is_concurrent());
        slots.map(|charge| self.key(&charge)).collect()
    }

    /// Returns the key of the epoch of the holds on a state: the key of the state, followed by
    /// `%h`. Each member of a fair pool has its own epoch, so the key also contains the member.
    /// Both keys are in the same slot. No other key ends in `%h`, because `%` is escaped.
    #[must_use]
    pub fn epoch_key(&self, charge: &Charge<'_>) -> Vec<u8> {
        let mut key = self.key(charge);
        if charge.policy.is_fair_pool() {
            key.push(b':');
            escape(charge.subject, &mut key);
        }
        key.extend_from_slice(b"%h");
        key
    }

    /// Returns the key of the id of a call: `prefix:%id:{tag}:id`. The tag is the tag of the first
    /// charge, so that the keys of the id and of this charge are in the same slot. No state has
    /// such a key, because `%` in the name of a policy is escaped.
    #[must_use]
    pub fn id_key(&self, first: &Charge<'_>, id: &[u8]) -> Vec<u8> {
        let max_len = self.prefix.len() + first.slot_key().len() + 3 * id.len() + 20;
        let mut key = Vec::with_capacity(max_len);
        key.extend_from_slice(&self.prefix);
        key.extend_from_slice(b"%id");
        put_tag(first, &mut key);
        key.push(b':');
        escape(id, &mut key);
        key
    }

    /// Returns a key that belongs to no subject: `prefix:%name:{tag}`. No state has such a key,
    /// because `%` in the name of a policy is escaped.
    #[must_use]
    pub fn own_key(&self, name: &str, tag: &str) -> Vec<u8> {
        let mut key = self.prefix.clone();
        key.extend_from_slice(format!("%{name}:{{{tag}}}").as_bytes());
        key
    }
}

fn put_tag(charge: &Charge<'_>, key: &mut Vec<u8>) {
    let tag = charge.slot_key();
    key.extend_from_slice(b":{");
    let begins = key.len();
    if tag.is_empty() {
        key.push(b'%');
    }
    escape(tag, key);
    if let Some(shard) = charge.policy.shard() {
        shard_tag::end(key, begins, shard);
    }
    key.push(b'}');
}

/// The ASCII characters that are escaped. Bytes that are not ASCII are always escaped.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'{').add(b'}').add(b':').add(b'%');

fn escape(bytes: &[u8], into: &mut Vec<u8>) {
    percent_encode(bytes, ESCAPED).for_each(|part| into.extend_from_slice(part.as_bytes()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::Policy;
    use tidegate_testkit::generate::{Bytes, confusable_pair, hostile_subject};

    use super::*;

    fn key(name: &str, tenant: &[u8], subject: &[u8]) -> Vec<u8> {
        let policy: Policy = format!("{name}: fixed-window 1/1s").parse().unwrap();
        Keys::new("tidegate").key(&Charge::new(&policy, subject).tenant(tenant))
    }

    #[test]
    fn only_special_characters_are_escaped() {
        assert_eq!(key("p", b"", b"alice@x.org"), b"tidegate:p:window.1s:{alice@x.org}");
        assert_eq!(key("p", b"", b""), b"tidegate:p:window.1s:{%}");
        assert_eq!(key("p", b"", b"%"), b"tidegate:p:window.1s:{%25}");
        assert_eq!(key("p", b"t{1}", b""), b"tidegate:p:window.1s:{t%7B1%7D}:");
        assert_eq!(key("p", b"", b"\0 \xff"), b"tidegate:p:window.1s:{%00%20%FF}");
    }

    #[test]
    fn a_limit_of_a_tenant_has_one_key_for_all_its_subjects() {
        let all: Policy = "p: fixed-window 9/1s shards 1 by-subject".parse().unwrap();
        for subject in ["", "alice", "bob"] {
            let key = Keys::new("t").key(&Charge::new(&all, subject).tenant("acme"));
            assert_eq!(key, b"t:p:window.1s:{acme}:");
        }
        assert_eq!(Keys::new("t").key(&Charge::new(&all, "alice")), b"t:p:window.1s:{%}");
    }

    #[test]
    fn shards_with_the_same_index_are_in_one_slot_for_all_policies() {
        let policies = ["p: fixed-window 9/1s shards 4", "q: sliding-log 4/1m shards 4 whole"];
        let tags = policies.map(|policy| {
            let policy: Policy = policy.parse().unwrap();
            let tags = policy
                .shares()
                .iter()
                .map(|share| tag_of(&Keys::new("t").key(&Charge::new(share, "a").tenant("acme"))));
            tags.collect::<Vec<_>>()
        });
        assert_eq!(tags[0], tags[1]);
    }

    fn tag_of(key: &[u8]) -> Vec<u8> {
        let begins = key.iter().position(|&byte| byte == b'{').unwrap() + 1;
        let ends = key.iter().position(|&byte| byte == b'}').unwrap();
        key[begins..ends].to_vec()
    }

    /// Generates bytes from parts that occur at the end of a shard's tag, such as `%.4.`, and from
    /// other parts.
    fn tag_like() -> impl Strategy<Value = Bytes> {
        let part = prop_oneof![
            3 => prop::sample::select(vec![&b"%"[..], b".", b"%.", b"%.4.", b"4", b"16", b"\x16"]),
            2 => prop::sample::select(vec![&b"acme"[..], b"F9", b"BZ", b"Ar", b"As", b"%2", b""]),
        ];
        prop::collection::vec(part, 0..6).prop_map(|parts| Bytes::from(parts.concat()))
    }

    #[test]
    fn a_prefix_keeps_its_colons_and_chooses_no_slot() {
        let policy: Policy = "p: fixed-window 1/1s".parse().unwrap();
        let key = Keys::new("app:{x}:").key(&Charge::new(&policy, "s"));
        assert_eq!(key, b"app:%7Bx%7D::p:window.1s:{s}");
    }

    proptest! {
        #[test]
        fn b17_no_two_inputs_share_a_key([a, b] in confusable_pair()) {
            prop_assert_ne!(key("p", &a.0, &a.1), key("p", &b.0, &b.1));
        }

        #[test]
        fn b17_no_two_shards_share_a_key_and_no_other_subject_has_one(
            one in (prop_oneof![hostile_subject(), tag_like()], tag_like()),
            other in (prop_oneof![hostile_subject(), tag_like()], tag_like()),
            counts in (1..20_u32, 1..20_u32),
            index in any::<prop::sample::Index>(),
        ) {
            let keys = |(tenant, subject): &(Bytes, Bytes), count| {
                let policy = format!("p: fixed-window 99/1s shards {count}");
                let policy: Policy = policy.parse().unwrap();
                let all = if count == 1 { std::slice::from_ref(&policy) } else { policy.shares() };
                let key = |share| Keys::new("t").key(&Charge::new(share, subject).tenant(tenant));
                all.iter().map(key).collect::<Vec<_>>()
            };
            let (ones, others) = (keys(&one, counts.0), keys(&other, counts.1));
            let place = index.index(ones.len());
            let same = others.iter().position(|key| *key == ones[place]);
            let is_same = one == other && counts.0 == counts.1;
            prop_assert_eq!(same, is_same.then_some(place));
            let opened_again = tag_of(&ones[place]).contains(&b'{');
            prop_assert!(!opened_again);
        }

        #[test]
        fn b17_no_subject_chooses_its_slot(tenant in hostile_subject(), subject in hostile_subject()) {
            let key = key("p", &tenant, &subject);
            let tag = &key[b"tidegate:p:window.1s:{".len()..];
            let end = tag.iter().position(|&byte| byte == b'}').unwrap();
            prop_assert!(end > 0);
            let opened = tag[..end].contains(&b'{');
            let closed_again = tag[end + 1..].contains(&b'}');
            prop_assert!(!opened && !closed_again);
            let printable = key.iter().all(u8::is_ascii_graphic);
            prop_assert!(printable);
        }
    }
}
