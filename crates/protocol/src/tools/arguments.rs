//! The arguments of a call as one struct for each tool.
//!
//! `arguments!` makes the struct, the rows of the table and the reader from one list. So a name, its aliases, limits and
//! description are written once, and no code asks for an argument by its name. The type of a field is the form of the
//! argument: `forms.rs` has all forms. `crates/tools` parses the JSON object before, and refuses unknown names.
//!
//! Clients write the arguments with the struct's [`ArgumentsBuilder`], which has a method for each of them.

use super::row::{Parameter, Tool};
use serde_json::{Map, Value};
use std::marker::PhantomData;

/// Makes the struct of a tool's arguments from rows `name: form = parameter`. `of` names the tool, for clients that call
/// it. `with` adds groups. Their arguments also have rows here, with the form `Grouped`.
macro_rules! arguments {
    (
        $(#[$about:meta])*
        $name:ident $(of $tool:ident)? $(with { $($group:ident: $kind:ty),* })? {
            $($field:ident: $form:ty = $row:expr,)*
        }
    ) => {
        $crate::tools::arguments::fields! {
            $(#[$about])* $name { $($field: $form,)* } with { $($($group: $kind,)*)? }
        }

        impl $name {
            /// Parameters in the order of the documentation.
            pub const PARAMETERS: &'static [$crate::tools::row::Parameter] =
                &[$($row.called(stringify!($field)),)*];

            /// Reads the arguments of a call.
            #[must_use]
            pub fn of(object: &serde_json::Map<String, serde_json::Value>) -> Self {
                Self::from_given($crate::tools::arguments::Given::new(Self::PARAMETERS, object))
            }
        }

        $(impl $crate::tools::arguments::ToolArguments for $name {
            const TOOL: $crate::tools::row::Tool = $tool;
        })?
    };
}

/// Makes the struct of a group: arguments with one purpose, which several tools may have. Each tool has their rows, with
/// its own defaults. An argument without a row is absent. `with` adds groups.
macro_rules! group {
    (
        $(#[$about:meta])*
        $name:ident $(with { $($group:ident: $kind:ty),* })? { $($field:ident: $form:ty,)* }
    ) => {
        $crate::tools::arguments::fields! {
            $(#[$about])* $name { $($field: $form,)* } with { $($($group: $kind,)*)? }
        }

        impl $crate::tools::arguments::Form for $name {
            fn read(argument: $crate::tools::arguments::Argument<'_>) -> Self {
                Self::from_given(argument.given())
            }
        }
    };
}

/// Makes the struct of arguments and its builder.
macro_rules! fields {
    (
        $(#[$about:meta])*
        $name:ident { $($field:ident: $form:ty,)* } with { $($group:ident: $kind:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name {
            $(#[doc = concat!("The argument `", stringify!($field), "`.")] pub $field: $form,)*
            $(#[doc = "A group of arguments."] pub $group: $kind,)*
        }

        impl $name {
            fn from_given(given: $crate::tools::arguments::Given<'_>) -> Self {
                Self {
                    $($field: given.read(stringify!($field)),)*
                    $($group: given.read(stringify!($group)),)*
                }
            }

            /// Returns a builder without arguments.
            #[must_use]
            pub fn builder() -> $crate::tools::arguments::ArgumentsBuilder<Self> {
                $crate::tools::arguments::ArgumentsBuilder::new()
            }
        }

        impl $crate::tools::arguments::ArgumentsBuilder<$name> {
            $(
                #[doc = concat!("Sets the argument `", stringify!($field), "`. Null leaves it out.")]
                #[must_use]
                pub fn $field(self, value: impl Into<serde_json::Value>) -> Self {
                    self.with(stringify!($field), value.into())
                }
            )*
        }
    };
}

pub(super) use {arguments, fields, group};

/// Arguments of a tool that clients call by their type.
pub trait ToolArguments {
    /// Row of the tool.
    const TOOL: Tool;
}

/// Arguments of a call as a client writes them: a tool's, or those of a group. `A` is their struct.
#[derive(Debug)]
pub struct ArgumentsBuilder<A> {
    object: Map<String, Value>,
    form: PhantomData<A>,
}

impl<A> ArgumentsBuilder<A> {
    pub(super) fn new() -> Self {
        Self { object: Map::new(), form: PhantomData }
    }

    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        if !value.is_null() {
            self.object.insert(name.to_owned(), value);
        }
        self
    }

    /// Adds the arguments of one of the tool's groups.
    #[must_use]
    pub fn group<G>(mut self, group: ArgumentsBuilder<G>) -> Self {
        self.object.extend(group.object);
        self
    }

    /// Returns the JSON object of the call.
    #[must_use]
    pub fn build(self) -> Map<String, Value> {
        self.object
    }
}

/// The arguments of a call, and the parameters of its tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    parameters: &'static [Parameter],
    object: &'a Map<String, Value>,
}

/// One argument of a call, which may be absent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Argument<'a> {
    given: Given<'a>,
    /// `None` if the tool does not have it.
    parameter: Option<&'static Parameter>,
}

/// Type of an argument.
pub(super) trait Form: Sized {
    /// Reads the argument.
    fn read(argument: Argument<'_>) -> Self;
}

impl<'a> Given<'a> {
    pub(super) fn new(parameters: &'static [Parameter], object: &'a Map<String, Value>) -> Self {
        Self { parameters, object }
    }

    /// Reads the argument with this name.
    pub(super) fn read<F: Form>(self, name: &str) -> F {
        let parameter = self.parameters.iter().find(|parameter| parameter.name == name);
        F::read(Argument { given: self, parameter })
    }
}

impl<'a> Argument<'a> {
    pub(super) fn given(self) -> Given<'a> {
        self.given
    }

    pub(super) fn parameter(self) -> Option<&'static Parameter> {
        self.parameter
    }

    /// Returns the values, each with the name or alias that the call uses. Null counts as absent.
    pub(super) fn values(self) -> impl Iterator<Item = (&'static str, &'a Value)> {
        let names = self.parameter.into_iter().flat_map(Parameter::names);
        let values = names.filter_map(move |name| Some((name, self.given.object.get(name)?)));
        values.filter(|(_, value)| !value.is_null())
    }

    /// Returns the default as JSON.
    pub(super) fn default(self) -> Option<Value> {
        // A test checks that the defaults are JSON.
        serde_json::from_str(self.parameter?.default?).ok()
    }
}
