//! What a plain scalar means: the core schema of YAML 1.2, in which `yes` is text.

use serde_json::Number;

use super::yaml::Yaml;

/// The value of a plain scalar; `None` for a number that JSON cannot hold.
pub(super) fn resolve(text: &str) -> Option<Yaml> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Yaml::Null,
        "true" | "True" | "TRUE" => Yaml::Bool(true),
        "false" | "False" | "FALSE" => Yaml::Bool(false),
        _ if is_special_float(text) => return None,
        _ if is_integer(text) => Yaml::Number(integer(text)?),
        _ if is_float(text) => Yaml::Number(Number::from_f64(text.parse().ok()?)?),
        _ => Yaml::Text(text.to_owned()),
    })
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

fn digits(text: &str, radix: u32) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_digit(radix))
}

fn is_special_float(text: &str) -> bool {
    matches!(unsigned(text), ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn is_integer(text: &str) -> bool {
    digits(unsigned(text), 10)
        || text.strip_prefix("0o").is_some_and(|t| digits(t, 8))
        || text.strip_prefix("0x").is_some_and(|t| digits(t, 16))
}

fn integer(text: &str) -> Option<Number> {
    let number = if let Some(octal) = text.strip_prefix("0o") {
        i128::from_str_radix(octal, 8)
    } else if let Some(hex) = text.strip_prefix("0x") {
        i128::from_str_radix(hex, 16)
    } else {
        text.parse::<i128>()
    };
    Number::from_i128(number.ok()?)
}

fn is_float(text: &str) -> bool {
    let text = unsigned(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let number = (digits(whole, 10) && (fraction.is_empty() || digits(fraction, 10)))
        || (whole.is_empty() && digits(fraction, 10));
    number && exponent.is_none_or(|e| digits(unsigned(e), 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        resolve(text).expect("a value").json().to_string()
    }

    #[test]
    fn the_core_schema_of_yaml_1_2() {
        for text in
            ["yes", "no", "on", "off", "y", "1_000", "0b1", "1:30", "12e", ".", "-", "1.2.3"]
        {
            assert!(matches!(resolve(text), Some(Yaml::Text(_))), "{text} is text");
        }
        for (text, value) in [
            ("~", "null"),
            ("True", "true"),
            ("-12", "-12"),
            ("+3", "3"),
            ("0o17", "15"),
            ("0xff", "255"),
            ("18446744073709551615", "18446744073709551615"),
            ("1.50", "1.5"),
            (".5", "0.5"),
            ("1e3", "1000.0"),
        ] {
            assert_eq!(json(text), value, "{text}");
        }
        for text in [".inf", "-.inf", ".nan", "99999999999999999999999", "1e999"] {
            assert!(resolve(text).is_none(), "{text} has no value in JSON");
        }
    }
}
