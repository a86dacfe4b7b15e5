//! A soak of a few hours with a few pods. `make soak` lets a week pass.
use hack::soak::Args;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_broken_in_two_hours() {
    let broken = Args::small(2.0 / 24.0, 12, 5).broken().await.unwrap();
    assert_eq!(broken, [""; 0]);
}
