//! Macros for the accessors in the table of keys.

/// Accessor of the field in [`crate::Config`] that stores a key's value.
macro_rules! field {
    ($table:ident . $name:ident) => {
        $crate::value_kind::FieldAccessor {
            get: |config| &config.$table.$name,
            get_mut: |config| &mut config.$table.$name,
        }
    };
}

/// Accessor of the field in [`crate::Config`] that stores one of these values.
macro_rules! choice {
    ($table:ident . $name:ident, $values:expr, $word:expr) => {
        $crate::value_kind::ChoiceAccessor {
            words: || $values.map($word).to_vec(),
            get: |config| ($word(config.$table.$name.value), &config.$table.$name.origin),
            set: |config, index, origin| {
                if let Some(value) = $values.get(index).copied() {
                    config.$table.$name = $crate::Setting { value, origin };
                }
            },
        }
    };
}

/// Kind of a key whose value is one of these, and that has no variable.
macro_rules! choices {
    ($table:ident . $name:ident, $values:expr, $word:expr) => {
        $crate::value_kind::ValueKind::Choice {
            field: $crate::accessor::choice!($table.$name, $values, $word),
            variable: None,
        }
    };
}

pub(crate) use choice;
pub(crate) use choices;
pub(crate) use field;
