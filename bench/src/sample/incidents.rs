//! Generates incidents that limits should stop, and one incident that limits should not stop.

use super::clients::browser;
use super::random::Random;
use super::request::{Client, Request};
use super::site::{item, open_page};

const MINUTE: u64 = 60 * 1000;

/// Adds a scraper that copies the catalogue, at a steady rate slightly above one request per
/// second.
pub(super) fn scraper(random: &mut Random, requests: &mut Vec<Request>) {
    let address = Client::v4([203, 0, 113], 199 + random.below(40));
    let client = Client { address, user: "-", agent: "python-requests/2.32.5" };
    let mut at = random.between(60, 1_300) * MINUTE;
    let first = random.below(500);
    for number in first..first + random.between(900, 1_300) {
        let (took, bytes, path) =
            (15 + random.pause(45), random.between(6_000, 38_000), item(number));
        let (method, status, referer) = ("GET", 200, "-");
        requests.push(Request { at, took, client, method, path, status, bytes, referer });
        at += random.between(500, 950);
    }
}

/// Adds many well-behaved visitors that open the same page within minutes.
pub(super) fn viral_link(random: &mut Random, requests: &mut Vec<Request>) {
    let begin = random.between(700, 1_200) * MINUTE;
    for _ in 0..400 {
        let client = browser(random);
        let at = begin + random.pause(6 * MINUTE);
        let is_first = random.chance(400);
        let path = "/catalog/item/1312".to_owned();
        open_page(random, client, path, "https://news.example.net/", at, is_first, requests);
    }
}

/// Adds a password guesser, which sends waves of requests from a few addresses, and from a network
/// in which each request has another address. A limit by address cannot detect the requests of the
/// network.
pub(super) fn password_guesser(random: &mut Random, requests: &mut Vec<Request>) {
    let begin = random.between(120, 1_300) * MINUTE;
    let network = u32::try_from(0x0bad_0000 + random.below(16)).unwrap_or_default();
    let agent = "Mozilla/5.0 (Windows NT 10.0; Win64; x64)";
    let machines = [150, 151, 152].map(|last| Client::v4([192, 0, 2], last));
    for wave in 0..3 {
        let mut at = begin + wave * 7 * MINUTE;
        for number in 0..random.between(240, 320) {
            let address = match machines.get(usize::try_from(number % 4).unwrap_or_default()) {
                Some(machine) => *machine,
                None => Client::v6(network, random.next()),
            };
            let client = Client { address, user: "-", agent };
            let (method, path, referer) = ("POST", "/login".to_owned(), "-");
            let (took, status, bytes) = (random.between(180, 320), 401, 512);
            requests.push(Request { at, took, client, method, path, status, bytes, referer });
            at += random.between(60, 320);
        }
    }
}
