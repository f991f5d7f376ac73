//! Generates the requests of the ordinary visitors of the shop.

use super::random::Random;
use super::request::{Client, Request};
use super::site::{HOME, open_page, page};

const HOUR: u64 = 3600 * 1000;

/// The relative number of requests in each hour of the day.
const RHYTHM: [u64; 24] =
    [3, 2, 1, 1, 1, 2, 4, 7, 9, 10, 11, 11, 12, 11, 10, 10, 10, 11, 12, 14, 15, 13, 9, 5];

const BROWSERS: &[&str] = &[
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/144.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 Safari/605.1.15",
    "Mozilla/5.0 (X11; Linux x86_64; rv:147.0) Gecko/20100101 Firefox/147.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/144.0.0.0 Mobile Safari/537.36",
];

const CRAWLERS: &[&str] = &[
    "Mozilla/5.0 (compatible; ExampleBot/2.1; +https://bot.example.com/)",
    "Mozilla/5.0 (compatible; SearchSpider/1.4; +https://spider.example.net/about)",
    "ArchiveCrawler/3.0 (+https://archive.example.org/)",
];

const USERS: &[&str] = &["amira", "bjorn", "chen", "dana", "emeka", "freya", "goran", "hana"];

const REFERERS: &[&str] = &[
    "-",
    "-",
    "https://search.example.net/",
    "https://search.example.net/",
    "https://blog.example.org/lamps",
];

/// Returns a time of the day. Busy hours are more probable.
fn moment(random: &mut Random) -> u64 {
    let mut left = random.below(RHYTHM.iter().sum());
    for (hour, weight) in (0..).zip(RHYTHM) {
        if left < weight {
            return hour * HOUR + random.below(HOUR);
        }
        left -= weight;
    }
    0
}

/// Returns a visitor with a browser. Two of five visitors have an IPv6 address.
pub(super) fn browser(random: &mut Random) -> Client {
    let address = match random.below(5) {
        0 | 1 => {
            let home = random.below(1_500);
            let network = u32::try_from(0x0010_0000 + home * 0x101).unwrap_or_default();
            Client::v6(network, (home + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        }
        2 | 3 => Client::v4([198, 51, 100], random.below(254)),
        _ => Client::v4([203, 0, 113], random.below(127)),
    };
    Client { address, user: "-", agent: random.pick(BROWSERS) }
}

/// Adds one visit: some pages with their files, and time to read each page.
pub(super) fn visitor(random: &mut Random, requests: &mut Vec<Request>) {
    let client = browser(random);
    let at = moment(random);
    browse(random, client, at, requests);
}

fn browse(random: &mut Random, mut client: Client, mut at: u64, requests: &mut Vec<Request>) {
    let signs_in = client.user == "-" && random.chance(80);
    let mut referer = random.pick(REFERERS);
    let pages = 1 + random.pause(3);
    for number in 0..pages {
        let path = page(random);
        at = open_page(random, client, path, referer, at, number == 0, requests);
        at += 1_000 + random.pause(22_000);
        referer = HOME;
        if number == 0 && signs_in {
            let (method, path) = ("POST", "/login".to_owned());
            requests.push(Request {
                at,
                took: 180,
                client,
                method,
                path,
                status: 302,
                bytes: 0,
                referer,
            });
            client.user = random.pick(USERS);
            at += 300;
        }
    }
}

/// Adds the requests of a crawler, which sends them slowly at any time of the day.
pub(super) fn crawler(random: &mut Random, requests: &mut Vec<Request>) {
    let number = random.below(CRAWLERS.len() as u64);
    let agent = usize::try_from(number).ok().and_then(|number| CRAWLERS.get(number));
    let address = Client::v4([192, 0, 2], number);
    let client = Client { address, user: "-", agent: agent.copied().unwrap_or_default() };
    let mut at = random.below(23 * HOUR);
    let mut path = "/robots.txt".to_owned();
    for _ in 0..random.between(20, 80) {
        let (took, bytes) = (15 + random.pause(60), random.between(400, 30_000));
        let (status, referer) = (if random.chance(40) { 404 } else { 200 }, "-");
        requests.push(Request { at, took, client, method: "GET", path, status, bytes, referer });
        at += random.between(2_000, 9_000);
        path = page(random);
    }
}

/// Adds the requests of a person in an office. All persons have the same address, and many start at
/// the same time, so that a limit by address sees one fast client.
pub(super) fn office(random: &mut Random, requests: &mut Vec<Request>) {
    let address = Client::v4([203, 0, 113], 128);
    let user = if random.chance(700) { random.pick(USERS) } else { "-" };
    let client = Client { address, user, agent: random.pick(BROWSERS) };
    let hour = random.pick(&[8, 9, 9, 9, 10, 11, 13, 13, 14, 15, 16]);
    let within = if hour == 9 || hour == 13 { random.below(HOUR / 15) } else { random.below(HOUR) };
    browse(random, client, hour * HOUR + within, requests);
}

/// Adds the requests of a partner's program: some requests for orders, and then many requests for
/// the stock within seconds, across the end of a minute. A fixed window of a minute counts only a
/// part of the burst in each minute.
pub(super) fn program(random: &mut Random, requests: &mut Vec<Request>) {
    let number = random.below(6);
    let user = random.pick(&["svc-orders", "svc-stock"]);
    let address = if number < 4 {
        Client::v4([192, 0, 2], 20 + number)
    } else {
        Client::v6(0x00a0_0000, number)
    };
    let client = Client { address, user, agent: "partner-sync/1.8" };
    let mut at = random.below(23) * HOUR + random.below(HOUR);
    let ask = |at: u64, random: &mut Random, path: String, requests: &mut Vec<Request>| {
        let (took, bytes) = (10 + random.pause(40), random.between(200, 9_000));
        let (method, status, referer) = ("GET", 200, "-");
        requests.push(Request { at, took, client, method, path, status, bytes, referer });
    };
    for cursor in 0..random.between(10, 40) {
        ask(at, random, format!("/api/v1/orders?after={cursor}"), requests);
        at += 20_000 + random.pause(10_000);
    }
    at = at / 60_000 * 60_000 + 60_000 - random.between(9_000, 15_000);
    for page in 1..=random.between(60, 110) {
        ask(at, random, format!("/api/v1/stock?page={page}"), requests);
        at += random.between(120, 320);
    }
}
