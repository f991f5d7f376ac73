use tidegate_core::{Answer, Error, ManualClock, Store};

/// A type without values. It replaces the server if the program is built without the feature
/// `redis`, so that the other modules need no `#[cfg]` for the server.
#[derive(Debug, Clone, Copy)]
pub enum Server {}

impl Server {
    pub(super) fn parse(_: &str, _: Option<&str>) -> Result<Self, String> {
        Err("this program was built without Redis; build it with `--features redis`".into())
    }

    pub(super) fn open(&self, _: &str, _: ManualClock) -> Result<Box<dyn Store>, Error> {
        match *self {}
    }

    pub(super) fn wait<T>(&self, _: impl Future<Output = T>) -> T {
        match *self {}
    }

    pub(super) fn wait_for_all<T>(
        &self,
        _: Vec<Answer<'_, Result<T, Error>>>,
    ) -> Result<Vec<T>, Error> {
        match *self {}
    }
}
