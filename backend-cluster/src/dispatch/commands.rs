//! Sends commands to the node that serves a key, for the limit set.

use std::sync::Arc;
use std::time::Duration;

use redis::cluster_routing::Slot;
use redis::{Pipeline, RedisError, ServerErrorKind, Value};
use tidegate_core::{Answer, Error, ErrorKind};
use tidegate_redis::Run;
use tidegate_redis::connection::check_runtime;
use tidegate_redis::connection::error::call_error;
use tokio::time::sleep;

use super::pipeline::may_have_moved;
use crate::inner::Inner;
use crate::routing::node::{Node, redirect_address};

/// The maximum number of times that the commands are sent.
const MAX_ATTEMPTS: u32 = 8;

/// The pause while a slot is moved.
const PAUSE: Duration = Duration::from_millis(50);

impl Run for Inner {
    fn run<'a>(
        &'a self,
        key: &'a [u8],
        commands: &'a Pipeline,
    ) -> Answer<'a, Result<Vec<Value>, Error>> {
        Answer::later(self.send(Slot::for_key(key), commands))
    }
}

impl Inner {
    async fn send(&self, slot: Slot, commands: &Pipeline) -> Result<Vec<Value>, Error> {
        check_runtime()?;
        let mut redirected = None;
        for _ in 0..MAX_ATTEMPTS {
            let (node, is_asking) = match redirected.take() {
                Some(redirected) => redirected,
                None => (self.topology.primary(slot).await?, false),
            };
            let replies = self.send_to(&node, commands, is_asking).await;
            let replies = replies.inspect_err(|_| self.topology.trigger())?;
            let Some(error) = replies.iter().find_map(|reply| reply.as_ref().err()) else {
                return Ok(replies.into_iter().flatten().collect());
            };
            let is = |kind: ServerErrorKind| error.kind() == kind.into();
            let address = error.detail().and_then(|text| text.split_ascii_whitespace().nth(1));
            match address {
                Some(address) if is(ServerErrorKind::Moved) => {
                    let other = self.slot_map.node(&redirect_address(address, &node.address)?);
                    self.slot_map.set_primary(slot, &other);
                    self.topology.trigger();
                }
                Some(address) if is(ServerErrorKind::Ask) => {
                    let other = self.slot_map.node(&redirect_address(address, &node.address)?);
                    redirected = Some((other, true));
                }
                _ if is(ServerErrorKind::TryAgain) => sleep(PAUSE).await,
                _ => {
                    let error = call_error(&node.address.to_string(), error.clone());
                    if may_have_moved(&error) {
                        self.topology.trigger();
                    }
                    return Err(error);
                }
            }
        }
        let message = format!("the nodes of the cluster do not agree about {slot:?}");
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    async fn send_to(
        &self,
        node: &Arc<Node>,
        commands: &Pipeline,
        is_asking: bool,
    ) -> Result<Vec<Result<Value, RedisError>>, Error> {
        let mut pipeline = Pipeline::new();
        for command in commands.cmd_iter() {
            if is_asking {
                pipeline.cmd("ASKING").ignore();
            }
            pipeline.add_command(command.clone());
        }
        pipeline.ignore_errors();
        let connection = node.connections.next();
        let mut live = connection.live().await?;
        connection.send_all(&mut live, &pipeline).await
    }
}
