//! Measures the cost of a request through layers, without a network.

use std::convert::Infallible;
use std::fmt::Write;
use std::future::{Future, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use axum::routing::get;
use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::{ClientAddress, Everybody, from_fn};
use tidegate_memory::{Limiter, MemoryStore, Subject};
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::PeerIpKeyExtractor;

use super::Options;
use crate::Outcome;
use crate::harness::{Samples, middle, rounds, thread_time};

/// A policy whose limit is never reached, so that all servers do the same work.
pub(super) const POLICY: &str = "token-bucket 1000000000/1s";

const ADDRESSES: u32 = 1_000;

/// The number of requests in a batch. The benchmark creates them before it measures the batch.
const BATCH: u32 = 1_000;

const HELLO: &str = "Hello, world!";

type Governed<M> = GovernorLayer<PeerIpKeyExtractor, M, Body>;

/// Returns the layer of `tidegate-http` with a limit by address, and with rate-limit fields.
pub(super) fn tidegate() -> Outcome<RateLimitLayer<MemoryStore>> {
    let limiter = Limiter::new(MemoryStore::new(), [format!("ip: {POLICY}").parse()?])?;
    Ok(RateLimitLayer::new(limiter, [Limit::by("ip", ClientAddress::peer())])?)
}

/// Returns the layer of `tidegate-http` with three limits: by address, by path, and for all
/// requests together.
fn tidegate_with_three() -> Outcome<RateLimitLayer<MemoryStore>> {
    let policies = ["ip", "path", "everybody"].map(|name| format!("{name}: {POLICY}").parse());
    let policies = policies.into_iter().collect::<Result<Vec<_>, _>>()?;
    let limits = [
        Limit::by("ip", ClientAddress::peer()),
        Limit::by("path", from_fn(|request| Some(Subject::from(request.uri.path())))),
        Limit::by("everybody", Everybody),
    ];
    Ok(RateLimitLayer::new(Limiter::new(MemoryStore::new(), policies)?, limits)?)
}

/// Returns the layer of tower_governor with a limit by address, and with rate-limit fields.
pub(super) fn governor() -> Outcome<Governed<governor::middleware::StateInformationMiddleware>> {
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_nanosecond(1).burst_size(1_000_000_000).use_headers().finish();
    Ok(GovernorLayer::new(Arc::new(config.ok_or("a quota of nothing")?)))
}

fn governor_without_fields() -> Outcome<Governed<governor::middleware::NoOpMiddleware>> {
    let config =
        GovernorConfigBuilder::default().per_nanosecond(1).burst_size(1_000_000_000).finish();
    Ok(GovernorLayer::new(Arc::new(config.ok_or("a quota of nothing")?)))
}

struct Contender {
    name: &'static str,
    /// Two stacks: the layers around a service, and the layers around an axum router.
    stacks: [Stack; 2],
}

type Stack = Box<dyn FnMut(Vec<Request<Body>>) -> Outcome<()>>;

#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    nanos: u64,
    allocations: u64,
}

fn contender<L>(name: &'static str, layer: L) -> Contender
where
    L: Layer<axum::routing::Route> + Layer<Hello> + Clone + Send + Sync + 'static,
    <L as Layer<axum::routing::Route>>::Service: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    <<L as Layer<axum::routing::Route>>::Service as Service<Request<Body>>>::Future: Send + 'static,
    <L as Layer<Hello>>::Service:
        Service<Request<Body>, Response = Response<Body>, Error = Infallible> + 'static,
{
    let router = Router::new().route("/", get(|| ready(HELLO))).layer(layer.clone());
    Contender { name, stacks: [stack(Layer::<Hello>::layer(&layer, Hello)), stack(router)] }
}

/// The innermost service of a stack. It answers with a greeting.
#[derive(Debug, Clone, Copy)]
struct Hello;

impl Service<Request<Body>> for Hello {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(HELLO.into_response()))
    }
}

fn stack<S>(mut service: S) -> Stack
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + 'static,
{
    Box::new(move |requests| {
        let mut context = Context::from_waker(Waker::noop());
        for request in requests {
            let is_ready = service.poll_ready(&mut context).is_ready();
            match pin!(service.call(request)).poll(&mut context) {
                Poll::Ready(Ok(response)) if is_ready && response.status().is_success() => {}
                answer => return Err(format!("the answer of a stack is {answer:?}").into()),
            }
        }
        Ok(())
    })
}

fn requests() -> Outcome<Vec<Request<Body>>> {
    let request = |number: u32| {
        let mut request = Request::get("/").body(Body::empty())?;
        let address = Ipv4Addr::from(0x0a00_0000 + number % ADDRESSES);
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((address, 80))));
        Ok(request)
    };
    (0..BATCH).map(request).collect()
}

fn cost(stack: &mut Stack, count: u32) -> Outcome<Cost> {
    let mut spent = Duration::ZERO;
    let batches = count.div_ceil(BATCH);
    for _ in 0..batches {
        let requests = requests()?;
        let start = thread_time();
        stack(requests)?;
        spent += thread_time().saturating_sub(start);
    }
    let requests = requests()?;
    let mut result = Ok(());
    let counted = allocation_counter::measure(|| result = stack(requests));
    result?;
    Ok(Cost {
        nanos: u64::try_from(spent.as_nanos())? / (u64::from(batches) * u64::from(BATCH)),
        // Rounding removes the few allocations with which a store grows.
        allocations: (counted.count_total + u64::from(BATCH) / 2) / u64::from(BATCH),
    })
}

const NONE: &str = "none";
pub(super) const FIELDS: &str = "**tidegate-http**, fields on";
const THREE_LIMITS: &str = "**tidegate-http**, three limits, fields on";
pub(super) const NO_FIELDS: &str = "**tidegate-http**, no fields";
pub(super) const GOVERNOR: &str = "tower_governor, fields on";
pub(super) const GOVERNOR_NO_FIELDS: &str = "tower_governor, no fields";

const NAMES: [&str; 6] = [NONE, FIELDS, THREE_LIMITS, NO_FIELDS, GOVERNOR, GOVERNOR_NO_FIELDS];

/// The indices in `Contender::stacks`.
const SERVICE: usize = 0;
const ROUTER: usize = 1;

/// The costs of all rounds, by the name of the contender and the index of its stack.
type Costs = Samples<(&'static str, usize), Cost>;

pub(super) fn measure(count: usize, requests: u32) -> Outcome<Costs> {
    let mut contenders = [
        contender(NONE, tower::layer::util::Identity::new()),
        contender(FIELDS, tidegate()?),
        contender(THREE_LIMITS, tidegate_with_three()?),
        contender(NO_FIELDS, tidegate()?.without_fields()),
        contender(GOVERNOR, governor()?),
        contender(GOVERNOR_NO_FIELDS, governor_without_fields()?),
    ];
    let mut costs = Costs::new();
    for _ in rounds(count) {
        for contender in &mut contenders {
            for (index, stack) in contender.stacks.iter_mut().enumerate() {
                costs.add((contender.name, index), cost(stack, requests)?);
            }
        }
    }
    Ok(costs)
}

/// Returns the extra cost of a stack over the stack without a limiter: the median of the
/// differences in all rounds.
fn more(
    costs: &Costs,
    (name, index): (&'static str, usize),
    figure: fn(&Cost) -> u64,
) -> Outcome<i64> {
    let pairs = costs.get(&(name, index))?.iter().zip(costs.get(&(NONE, index))?);
    let more = pairs
        .map(|(cost, none)| Ok(i64::try_from(figure(cost))? - i64::try_from(figure(none))?))
        .collect::<Outcome<Vec<_>>>()?;
    Ok(middle(more))
}

/// Returns the time that the layer with this name adds to a request around a service, in
/// nanoseconds.
pub(super) fn more_nanos(costs: &Costs, name: &'static str) -> Outcome<u64> {
    Ok(more(costs, (name, SERVICE), |cost| cost.nanos)?.try_into().unwrap_or(0))
}

pub(super) fn table(costs: &Costs, options: &Options) -> Outcome<String> {
    let Options { rounds, requests, .. } = options;
    let mut table = format!(
        "A request of one of {ADDRESSES} addresses through the layer, without a network: CPU time and \
         allocations, and how much more that is than without a limiter. Medians of {rounds} interleaved \
         rounds of {requests} requests.\n\n\
         | limiter | around a service: ns | more | allocations | more | in an axum router: ns | more \
         | allocations | more |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for name in NAMES {
        write!(table, "| {name} |")?;
        for key in [(name, SERVICE), (name, ROUTER)] {
            for figure in [(|cost| cost.nanos) as fn(&Cost) -> u64, |cost| cost.allocations] {
                write!(
                    table,
                    " {} | {} |",
                    costs.median(&key, figure)?,
                    more(costs, key, figure)?
                )?;
            }
        }
        table.push('\n');
    }
    Ok(table)
}
