//! The body of a response. Its end settles the hold of the request.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::open_hold::{OpenHold, StoreCall};

pin_project! {
    /// The body of a response of a [`HoldService`](super::HoldService). It wraps the body of the
    /// inner service and counts its bytes. The end of the body settles the hold of the request.
    ///
    /// The data of the body never waits for the store. Only the end of the body waits until the
    /// store has settled the hold. If the body is dropped before its end was read, the drop settles
    /// the hold. For a store that does not answer immediately, a task does this. A client that
    /// disconnects is one reason. Another is a server such as hyper, which does not read the end of
    /// a body of known length.
    pub struct HoldBody<B> {
        #[pin]
        inner: B,
        // `None` if the request has no hold, or if the hold is settled.
        hold: Option<Box<dyn OpenHold>>,
        settling: Option<StoreCall>,
        is_over: bool,
    }
}

impl<B> HoldBody<B> {
    pub(super) fn new(inner: B, hold: Option<Box<dyn OpenHold>>) -> Self {
        Self { inner, hold, settling: None, is_over: false }
    }

    /// Returns the body of the inner service.
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
                // A report in flight does not delay the next frame.
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
                // A server may stop polling after the last frame, so the response ends here.
                if frame.is_trailers() || this.inner.is_end_stream() {
                    hold.end();
                    return None;
                }
                if this.settling.is_some() { None } else { hold.report() }
            }),
            Some(Err(_)) => {
                // The body failed. The drop of the hold settles it by the rule for requests that
                // were cut.
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
        // While this method returns `false`, most servers read the body to its end. At the end, the
        // hold is settled without a task.
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
