//! A soak of ten minutes with a few pods. `make soak` lets a week pass.

use hack::soak::Args;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_broken_in_ten_minutes() {
    let broken = Args::small(1.0 / 144.0, 8, 5).broken().await.unwrap();
    assert_eq!(broken, [""; 0]);
}
