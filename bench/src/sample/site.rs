//! The pages of the shop.

use super::random::Random;
use super::request::{Client, Request};

/// The address of the shop, as a browser sends it in `Referer`.
pub(super) const HOME: &str = "https://shop.example.com/";

const PAGES: &[&str] = &[
    "/",
    "/",
    "/",
    "/new",
    "/sale",
    "/catalog/lamps",
    "/catalog/chairs",
    "/catalog/tables",
    "/catalog/shelves",
    "/search?q=oak",
    "/search?q=desk+lamp",
    "/about",
    "/delivery",
    "/cart",
];

const ASSETS: &[&str] = &[
    "/static/site.css",
    "/static/site.js",
    "/static/logo.svg",
    "/static/fonts/text.woff2",
    "/static/hero.webp",
    "/static/icons.svg",
    "/static/cart.js",
    "/favicon.ico",
];

pub(super) fn page(random: &mut Random) -> String {
    if random.chance(400) { item(random.below(2_000)) } else { random.pick(PAGES).to_owned() }
}

pub(super) fn item(number: u64) -> String {
    format!("/catalog/item/{number}")
}

/// Adds the requests for a page and its files. On a first visit, no file is in the browser's cache,
/// so it requests all of them. Returns the time when the page has arrived.
pub(super) fn open_page(
    random: &mut Random,
    client: Client,
    path: String,
    referer: &'static str,
    at: u64,
    is_first: bool,
    requests: &mut Vec<Request>,
) -> u64 {
    let took = 20 + random.pause(90);
    let (status, bytes) =
        if random.chance(15) { (404, 1_204) } else { (200, random.between(6_000, 38_000)) };
    requests.push(Request { at, took, client, method: "GET", path, status, bytes, referer });
    let there = at + took;
    let assets = if is_first { ASSETS.len() as u64 } else { random.below(3) };
    for (asset, _) in ASSETS.iter().zip(0..assets) {
        let (status, bytes) = if is_first { (200, random.between(900, 90_000)) } else { (304, 0) };
        // Some requests are slow, so that lines late in the log have early times.
        let took =
            if random.chance(12) { random.between(2_000, 25_000) } else { 3 + random.pause(25) };
        let at = there + random.between(10, 600);
        let path = (*asset).to_owned();
        requests.push(Request {
            at,
            took,
            client,
            method: "GET",
            path,
            status,
            bytes,
            referer: HOME,
        });
    }
    there
}
