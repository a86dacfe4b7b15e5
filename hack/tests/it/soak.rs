//! A soak of half an hour with a few pods. `make soak` lets a week pass.

use hack::soak::Args;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_broken_in_half_an_hour() {
    let broken = Args::small(0.5 / 24.0, 12, 5).broken().await.unwrap();
    assert_eq!(broken, [""; 0]);
}
