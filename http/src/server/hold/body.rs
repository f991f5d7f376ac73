//! The body of a response whose costs are settled when it ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::open_hold::{OpenHold, Settling};

pin_project! {
    /// The body of a response of a [`HoldService`](super::HoldService): that of the inner service, whose bytes are
    /// counted and whose end settles what is held for the request.
    ///
    /// Unless the store answers immediately, the end of the body waits for the store; the last data does not. A body
    /// that is dropped earlier, as when the client has gone away, settles in a task.
    pub struct HoldBody<B> {
        #[pin]
        inner: B,
        // `None` if nothing is held, and once that is settled.
        hold: Option<Box<dyn OpenHold>>,
        settling: Option<Settling>,
        is_over: bool,
    }
}

impl<B> HoldBody<B> {
    pub(super) fn new(inner: B, hold: Option<Box<dyn OpenHold>>) -> Self {
        Self { inner, hold, settling: None, is_over: false }
    }

    /// The body of the inner service.
    pub fn get_ref(&self) -> &B {
        &self.inner
    }
}

impl<B: Body> Body for HoldBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        if let Some(settling) = this.settling {
            match settling.as_mut().poll(context) {
                Poll::Ready(()) => *this.settling = None,
                Poll::Pending if *this.is_over => return Poll::Pending,
                // A report does not hold the body up.
                Poll::Pending => {}
            }
        }
        if *this.is_over {
            return Poll::Ready(None);
        }
        let frame = ready!(this.inner.as_mut().poll_frame(context));
        let next = match &frame {
            Some(Ok(frame)) => this.hold.as_mut().and_then(|hold| {
                let bytes = frame.data_ref().map_or(0, |data| data.remaining());
                hold.count(u64::try_from(bytes).unwrap_or(u64::MAX));
                // A server may ask for no more after this.
                if frame.is_trailers() || this.inner.is_end_stream() {
                    hold.end();
                    return None;
                }
                if this.settling.is_some() { None } else { hold.report() }
            }),
            Some(Err(_)) => {
                // Dropped, it is settled as of a response that was cut.
                (*this.hold, *this.settling) = (None, None);
                None
            }
            None => {
                *this.is_over = true;
                *this.settling = None;
                this.hold.take().map(|mut hold| {
                    hold.end();
                    hold.settle()
                })
            }
        };
        if let Some(mut next) = next
            && next.as_mut().poll(context).is_pending()
        {
            *this.settling = Some(next);
            if *this.is_over {
                return Poll::Pending;
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // Polled to its end, the body settles in place, and needs no task for it.
        self.hold.is_none() && self.settling.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B: fmt::Debug> fmt::Debug for HoldBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldBody")
            .field("inner", &self.inner)
            .field("is_held", &self.hold.is_some())
            .finish_non_exhaustive()
    }
}

impl<B: Default> Default for HoldBody<B> {
    fn default() -> Self {
        Self::new(B::default(), None)
    }
}
