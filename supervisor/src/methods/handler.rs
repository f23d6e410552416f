//! Types that a handler takes and returns. `row.rs` reads the parameters and writes the reply through them.

use crate::wire::{self, ParsedRequest};
use bytes::Bytes;
use quackd_schema::{Shape, shape_of};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parameters of a handler: any type that can be read and has a schema, or [`NoParams`].
pub(super) trait Params: Sized {
    const SHAPE: Option<Shape>;
    fn read(request: &mut ParsedRequest) -> Result<Self, serde_json::Error>;
}

impl<T: DeserializeOwned + JsonSchema> Params for T {
    const SHAPE: Option<Shape> = Some(shape_of::<T>);

    fn read(request: &mut ParsedRequest) -> Result<Self, serde_json::Error> {
        request.params()
    }
}

/// The method has no parameters.
pub(super) struct NoParams;

impl Params for NoParams {
    const SHAPE: Option<Shape> = None;

    fn read(_request: &mut ParsedRequest) -> Result<Self, serde_json::Error> {
        Ok(Self)
    }
}

/// Result of a handler: any type that can be written and has a schema, [`NoData`], or a type that writes its own line.
pub(super) trait Reply {
    const SHAPE: Option<Shape>;
    fn line(self, id: Option<&Value>) -> Bytes;
}

impl<T: Serialize + JsonSchema> Reply for T {
    const SHAPE: Option<Shape> = Some(shape_of::<T>);

    fn line(self, id: Option<&Value>) -> Bytes {
        wire::success(id, Some(self))
    }
}

/// Success without data.
pub(super) struct NoData;

impl Reply for NoData {
    const SHAPE: Option<Shape> = None;

    fn line(self, id: Option<&Value>) -> Bytes {
        wire::success::<()>(id, None)
    }
}

/// Gives a type the schema of another type: one that reads more leniently, or forwards bytes unread.
macro_rules! schema_like {
    ($own:ty, $shown:ty) => {
        impl schemars::JsonSchema for $own {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$shown>::schema_name()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                <$shown>::schema_id()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$shown>::json_schema(generator)
            }
        }
    };
}
pub(super) use schema_like;
