//! Writing to the API server with patience: what may pass by itself is tried again after a growing pause, for a while.

use std::{future::Future, time::Duration};

/// How often one write is tried.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Tries until it works, until the answer is one that trying again will not change, or a few times.
pub(crate) async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match attempt().await {
            Err(error) if may_pass(&error) => {
                tokio::time::sleep(asked_pause(&error).unwrap_or(pause).min(LONGEST_PAUSE)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            outcome => return outcome,
        }
    }
    attempt().await
}

/// Whether the answer may be another one later.
pub(crate) fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 409 | 429 | 500..),
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

fn asked_pause(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn error(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            code,
            ..Status::default()
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_again_and_nothing_else() {
        for (codes, expected, tries) in [
            (vec![429, 503, 409], Ok(()), 4),
            (vec![422], Err(422), 1),
            (vec![404], Err(404), 1),
            (vec![500, 500, 500, 500, 500], Err(500), 4),
        ] {
            let mut left = codes.into_iter();
            let mut tried = 0;
            let outcome = patiently(|| {
                tried += 1;
                let next = left.next();
                async move { next.map_or(Ok(()), |code| Err(error(code))) }
            })
            .await;
            let outcome = outcome.map_err(|error| match error {
                kube::Error::Api(status) => status.code,
                _ => 0,
            });
            assert_eq!((outcome, tried), (expected, tries));
        }
    }
}
