//! Subjects from addresses, numbers and several parts.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smallvec::SmallVec;

/// The bytes for which a state is kept. A subject is a user, an address, an API key, or several
/// such parts.
///
/// A value that consists of bytes is borrowed. An address or a number is converted into text,
/// without an allocation.
///
/// | from | bytes |
/// |---|---|
/// | `&str`, `&[u8]`, `&String`, any `AsRef<[u8]>` | unchanged |
/// | [`IpAddr`], [`Ipv4Addr`], [`Ipv6Addr`] | the text, such as `203.0.113.9` or `2001:db8::1`; an IPv4-mapped address is converted into the IPv4 address |
/// | integers | the decimal number |
/// | `uuid::Uuid` (feature `uuid`) | the text with hyphens, in lower case |
/// | `()` | none: one subject for all requests |
/// | `(a, b)` up to four parts, [`parts`](Self::parts) | for each part its length, `:`, its bytes and `,` |
///
/// Two tuples are the same subject only if they have the same parts. So a user with the name
/// `a,1:b` cannot impersonate another user.
///
/// A single value can have the same bytes as a tuple: the string `5:alice,3:GET,` is the same
/// subject as `("alice", "GET")`. A policy should therefore receive only single values, or only
/// tuples.
///
/// ```
/// use std::net::IpAddr;
/// use tidegate_core::Subject;
///
/// let ip: IpAddr = "::ffff:203.0.113.9".parse()?;
/// assert_eq!(Subject::from(ip), Subject::from("203.0.113.9"));
/// assert_eq!(Subject::from(7_u64).as_bytes(), b"7");
/// assert_eq!(Subject::from(("alice", "GET /items")).as_bytes(), b"5:alice,10:GET /items,");
/// assert_ne!(Subject::from(("a:b", "c")), Subject::from(("a", "b:c")));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone)]
pub struct Subject<'a>(Bytes<'a>);

#[derive(Clone)]
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Owned(Owned),
}

/// The bytes of a subject. Up to 40 bytes need no allocation, because the text of an address, a
/// number or a UUID has at most 40 bytes.
type Owned = SmallVec<[u8; 40]>;

impl<'a> Subject<'a> {
    /// Creates a subject from several parts. The table at [`Subject`] shows its bytes.
    pub fn parts<T: Into<Subject<'a>>>(parts: impl IntoIterator<Item = T>) -> Subject<'static> {
        let mut bytes = Owned::new();
        for part in parts {
            push_part(&mut bytes, part.into().as_bytes());
        }
        Subject(Bytes::Owned(bytes))
    }

    /// Creates a subject from the text of a value. This function is for types that cannot be
    /// converted into a subject.
    ///
    /// ```
    /// use tidegate_core::Subject;
    ///
    /// assert_eq!(Subject::display(&format_args!("{}/{}", 1, 2)).as_bytes(), b"1/2");
    /// ```
    pub fn display(value: &(impl fmt::Display + ?Sized)) -> Subject<'static> {
        let mut text = Text(Owned::new());
        // Writing to memory cannot fail. If the `Display` implementation of `value` fails, the
        // subject contains the text that was written before the failure.
        let _ = write!(text, "{value}");
        Subject(Bytes::Owned(text.0))
    }

    /// Copies the bytes if they are borrowed. Up to 40 bytes need no allocation.
    #[must_use]
    pub fn into_owned(self) -> Subject<'static> {
        Subject(Bytes::Owned(match self.0 {
            Bytes::Borrowed(bytes) => Owned::from_slice(bytes),
            Bytes::Owned(bytes) => bytes,
        }))
    }

    /// Returns the bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// Appends a part with its length, as a netstring. So two different lists of parts never have the
/// same bytes.
fn push_part(bytes: &mut Owned, part: &[u8]) {
    let mut text = Text(std::mem::take(bytes));
    let _ = write!(text, "{}:", part.len());
    *bytes = text.0;
    bytes.extend_from_slice(part);
    bytes.push(b',');
}

struct Text(Owned);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Subject<'a> {
    fn from(bytes: &'a T) -> Self {
        Self(Bytes::Borrowed(bytes.as_ref()))
    }
}

impl From<String> for Subject<'_> {
    fn from(text: String) -> Self {
        Self(Bytes::Owned(Owned::from_vec(text.into_bytes())))
    }
}

impl From<()> for Subject<'_> {
    fn from((): ()) -> Self {
        Self(Bytes::Borrowed(b""))
    }
}

impl From<IpAddr> for Subject<'_> {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::from(address),
            IpAddr::V6(address) => Self::display(&address),
        }
    }
}

impl From<Ipv4Addr> for Subject<'_> {
    // This code does not use `Display`, because `Display` takes ten times as long. A server that
    // limits by address converts an address for each request.
    fn from(address: Ipv4Addr) -> Self {
        let mut text = Owned::new();
        for (place, octet) in address.octets().into_iter().enumerate() {
            if place > 0 {
                text.push(b'.');
            }
            if octet >= 100 {
                text.push(b'0' + octet / 100);
            }
            if octet >= 10 {
                text.push(b'0' + octet / 10 % 10);
            }
            text.push(b'0' + octet % 10);
        }
        Self(Bytes::Owned(text))
    }
}

impl From<Ipv6Addr> for Subject<'_> {
    fn from(address: Ipv6Addr) -> Self {
        Self::display(&address.to_canonical())
    }
}

#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Subject<'_> {
    fn from(uuid: uuid::Uuid) -> Self {
        Self::display(&uuid)
    }
}

macro_rules! from_integers {
    ($($integer:ty),+) => {$(
        impl From<$integer> for Subject<'_> {
            fn from(number: $integer) -> Self {
                Self::display(&number)
            }
        }
    )+};
}
from_integers!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

macro_rules! from_tuples {
    ($(($($name:ident),+)),+) => {$(
        impl<'a, $($name: Into<Subject<'a>>),+> From<($($name,)+)> for Subject<'_> {
            fn from(parts: ($($name,)+)) -> Self {
                #[expect(non_snake_case, reason = "the parts are named as their types")]
                let ($($name,)+) = parts;
                let mut bytes = Owned::new();
                $(push_part(&mut bytes, $name.into().as_bytes());)+
                Self(Bytes::Owned(bytes))
            }
        }
    )+};
}
from_tuples!((A, B), (A, B, C), (A, B, C, D));

impl AsRef<[u8]> for Subject<'_> {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Subject<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Subject<'_> {}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subject({:?})", ShownBytes(self.as_bytes()))
    }
}

/// Shows bytes from a caller as escaped text. If there are more than 100 bytes, it shows the first
/// 100 bytes and the length.
pub(crate) struct ShownBytes<'a>(pub(crate) &'a [u8]);

impl fmt::Debug for ShownBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 100;
        let begin = self.0.get(..SHOWN).unwrap_or(self.0);
        write!(f, "\"{}\"", begin.escape_ascii())?;
        if self.0.len() > SHOWN {
            write!(f, "… of {} bytes", self.0.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn different_parts_are_different_subjects(
            a in prop::collection::vec("[,:0-9a]{0,4}", 0..4),
            b in prop::collection::vec("[,:0-9a]{0,4}", 0..4),
        ) {
            prop_assert_eq!(Subject::parts(&a) == Subject::parts(&b), a == b);
        }

        #[test]
        fn a_tuple_has_the_parts_that_it_has(a: Vec<u8>, b: u64, c: i8, d: String) {
            let texts = [a.clone(), b.to_string().into_bytes(), c.to_string().into_bytes(), d.clone().into_bytes()];
            prop_assert_eq!(Subject::from((&a, b)), Subject::parts(&texts[..2]));
            prop_assert_eq!(Subject::from((&a, b, c)), Subject::parts(&texts[..3]));
            prop_assert_eq!(Subject::from((&a, b, c, &d)), Subject::parts(&texts));
        }

        #[test]
        fn an_address_is_its_text(v4: [u8; 4], v6: [u16; 8]) {
            let (v4, v6) = (Ipv4Addr::from(v4), Ipv6Addr::from(v6));
            let text = v4.to_string();
            prop_assert_eq!(Subject::from(v4), Subject::from(&text));
            prop_assert_eq!(Subject::from(IpAddr::from(v4)), Subject::from(v4));
            prop_assert_eq!(Subject::from(v4.to_ipv6_mapped()), Subject::from(v4));
            prop_assert_eq!(Subject::from(IpAddr::from(v6)), Subject::from(v6));
            prop_assume!(v6.to_ipv4_mapped().is_none());
            let text = v6.to_string();
            prop_assert_eq!(Subject::from(v6), Subject::from(&text));
        }
    }

    #[test]
    fn addresses_and_numbers_take_no_allocation() {
        let longest = [
            Subject::from(Ipv6Addr::from([0xffff; 8])),
            Subject::from(i128::MIN),
            #[cfg(feature = "uuid")]
            Subject::from(uuid::Uuid::max()),
        ];
        for subject in longest {
            assert!(matches!(&subject.0, Bytes::Owned(bytes) if !bytes.spilled()), "{subject:?}");
        }
    }

    #[test]
    fn a_long_subject_is_shown_in_part() {
        let long = [b'a'; 1 << 20];
        assert!(format!("{:?}", Subject::from(&long)).len() < 200);
        assert_eq!(format!("{:?}", Subject::from(b"a\x1b")), r#"Subject("a\x1b")"#);
    }
}
