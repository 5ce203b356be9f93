//! Redaction of JSON: every text, key and number, at any depth.

use serde_json::{Map, Value};

use super::Redactor;

impl Redactor {
    /// Replaces secrets in every text, key and number of `value`.
    pub fn json(&self, value: Value) -> Value {
        if self.0.is_none() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Number(number) => {
                let text = number.to_string();
                match self.text(&text) {
                    std::borrow::Cow::Owned(clear) => Value::String(clear),
                    std::borrow::Cow::Borrowed(_) => Value::Number(number),
                }
            }
            Value::Array(values) => values.into_iter().map(|v| self.json(v)).collect(),
            Value::Object(object) => Value::Object(self.object(object)),
            plain => plain,
        }
    }

    /// The same for an object.
    pub fn object(&self, object: Map<String, Value>) -> Map<String, Value> {
        if self.0.is_none() {
            return object;
        }
        let mut out = Map::new();
        for (key, value) in object {
            let mut key = self.text(&key).into_owned();
            while out.contains_key(&key) {
                key.push('\''); // two secrets may have become one name
            }
            out.insert(key, self.json(value));
        }
        out
    }
}
