//! A soak of twenty minutes with a few pods. `make soak` lets a week pass.

use hack::soak::Args;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_broken_in_twenty_minutes() {
    let broken = Args::small(1.0 / 72.0, 8, 5).broken().await.unwrap();
    assert_eq!(broken, [""; 0]);
}
