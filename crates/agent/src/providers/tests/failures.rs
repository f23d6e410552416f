//! Tables of failures.

use crate::providers::ErrorKind::{self, Fatal, Images, Overflow, Retryable, TooLarge};
use crate::providers::{http_error, retry_delay, transport_error};

/// Status, body, text and kind.
const WITH_STATUS: &[(u16, &str, &str, ErrorKind)] = &[
    (
        429,
        r#"{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}"#,
        "429 Rate limit reached",
        Retryable,
    ),
    (
        429,
        r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#,
        "429 You exceeded your current quota",
        Fatal,
    ),
    (
        429,
        "Too many tokens, please wait before trying again.",
        "429 Too many tokens, please wait before trying again.",
        Retryable,
    ),
    (500, "", "500 (no body)", Retryable),
    (501, "", "501 (no body)", Fatal),
    (
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        "529 Overloaded",
        Retryable,
    ),
    (
        503,
        "<html><head><title>503 Service\nUnavailable</title></head>",
        "503 503 Service Unavailable",
        Retryable,
    ),
    (502, "<html>", "502 HTML page", Retryable),
    (400, "", "400 (no body)", Overflow),
    (413, " ", "413 (no body)", TooLarge),
    (413, r#"{"error":{"type":"request_too_large","message":"No"}}"#, "413 No", TooLarge),
    (
        413,
        r#"{"error":{"message":"Limit 6000 tokens per minute"}}"#,
        "413 Limit 6000 tokens per minute",
        Fatal,
    ),
    (
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens."}}"#,
        "400 This model's maximum context length is 8192 tokens.",
        Overflow,
    ),
    (
        400,
        r#"{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
        "400 prompt is too long: 210000 tokens > 200000 maximum",
        Overflow,
    ),
    (
        400,
        r#"{"error":{"message":"the request exceeds the available context size"}}"#,
        "400 the request exceeds the available context size",
        Overflow,
    ),
    (
        400,
        r#"{"error":{"message":"The input token count (9) exceeds the maximum"}}"#,
        "400 The input token count (9) exceeds the maximum",
        Overflow,
    ),
    (
        400,
        r#"{"error":{"message":"Provider returned error","metadata":{"raw":"context_length_exceeded"}}}"#,
        "400 Provider returned error context_length_exceeded",
        Overflow,
    ),
    (400, r#"[{"error":{"message":"Bad field"}}]"#, "400 Bad field", Fatal),
    (
        400,
        r#"{"error":"maximum context length is unknown"}"#,
        "400 maximum context length is unknown",
        Fatal,
    ),
    (401, r#"{"message":"Bad key"}"#, "401 Bad key", Fatal),
    (402, r#"{"error":{"message":"Insufficient Balance"}}"#, "402 Insufficient Balance", Fatal),
    (404, r#"{"detail":"Not Found"}"#, "404 Not Found", Fatal),
    (422, "a\u{1b}[31m\nb", "422 a [31m b", Fatal),
    (
        413,
        "<html><head><title>413 Request Entity Too Large</title></head>",
        "413 413 Request Entity Too Large",
        TooLarge,
    ),
    (
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens, with 1 image"}}"#,
        "400 This model's maximum context length is 8192 tokens, with 1 image",
        Overflow,
    ),
    (
        429,
        r#"{"error":{"message":"Rate limit reached for images"}}"#,
        "429 Rate limit reached for images",
        Retryable,
    ),
    (503, "The image service is unavailable", "503 The image service is unavailable", Retryable),
    (500, "image worker crashed", "500 image worker crashed", Retryable),
];

#[test]
fn failures_with_a_status_are_classified() {
    for (status, body, text, kind) in WITH_STATUS {
        let error = http_error(*status, body.as_bytes(), false);
        assert_eq!((&*error.text, error.kind), (*text, *kind), "{status} {body}");
    }
    assert_eq!(http_error(400, "é".repeat(10_000).as_bytes(), false).text.chars().count(), 504);
    assert_eq!(http_error(400, b"\xff", false).text, "400 \u{fffd}");
    assert_eq!(transport_error("no byte for 300 s").kind, ErrorKind::Retryable);
}

/// Refusals of images: those of Anthropic, OpenAI, Google, OpenRouter, DeepSeek, xAI, vLLM, llama.cpp and Ollama.
const IMAGE_REFUSALS: &[(u16, &str)] = &[
    (
        400,
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes",
    ),
    (400, "messages.2.content.0.image: image exceeds the limit of 5242880 bytes"),
    (
        400,
        "At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels",
    ),
    (400, "Could not process image"),
    (400, "Image does not match the provided media type image/png"),
    (
        400,
        "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png']",
    ),
    (400, "Invalid content type. image_url is only supported by certain models."),
    (400, "Unable to process input image. Please retry or report"),
    (404, "No endpoints found that support image input"),
    (422, "messages[0]: unknown variant `image_url`, expected `text`"),
    (413, "Image is too large"),
    (415, "Unsupported image format"),
    (400, "At most 0 image(s) may be provided in one request."),
    (400, "some/model is not a multimodal model"),
    (
        500,
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
    ),
    (500, "this model is missing data required for image input"),
    (400, "this model has no vision"),
];

#[test]
fn refusals_of_images_are_known() {
    for (status, text) in IMAGE_REFUSALS {
        let bodies = [
            serde_json::json!({ "error": { "message": text } }),
            serde_json::json!({ "detail": text }),
        ];
        for body in bodies {
            let error = http_error(*status, body.to_string().as_bytes(), false);
            assert_eq!((error.kind, error.text), (Images, format!("{status} {text}")));
        }
    }
}

#[test]
fn delays_are_read_from_texts() {
    let cases = [
        ("Please try again in 1.2s. Visit x", Some(1200)),
        ("Please try again in 20ms.", Some(20)),
        ("Try again in 6m0s", Some(360_000)),
        ("quota will reset after 18h31m10s", Some(66_670_000)),
        ("Please retry in 7 seconds", Some(7000)),
        ("Please retry in a while", None),
        ("retry in 99999999999999999999h", Some(u64::MAX)),
        ("Overloaded", None),
    ];
    for (text, delay) in cases {
        assert_eq!(retry_delay(text), delay, "{text}");
    }
}

#[test]
fn a_full_quota_with_a_stated_delay_is_a_limit_that_is_waited_for() {
    let quota = r#"{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED"}}"#;
    let google = r#"[{"error":{"code":429,"message":"You exceeded your current quota","details":[
        {"@type":"type.googleapis.com/google.rpc.QuotaFailure"},
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}]"#;
    let in_text = r#"{"error":{"message":"Quota exceeded. Please retry in 1.5s."}}"#;
    let credit = r#"{"error":{"message":"Your credit balance is too low"}}"#;
    for (body, stated, kind) in [
        (quota, false, Fatal),
        (quota, true, Retryable),
        (google, false, ErrorKind::Waits(34_500)),
        (in_text, false, Retryable),
        (credit, true, Fatal),
    ] {
        assert_eq!(http_error(429, body.as_bytes(), stated).kind, kind, "{body} {stated}");
    }
}
