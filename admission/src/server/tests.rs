use super::*;
use crate::{
    config::TlsSettings,
    lease::connect,
    tls::{self, Material},
};
use crate::{
    feed::Known,
    metrics::Metrics,
    reviewer::tests::{deployment, injector, pod_review, reviewer},
    sidecarset::settings::Mode,
};
use axum::body::to_bytes;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::watch,
    task::JoinHandle,
};
use tower::ServiceExt as _;

/// The webhook on a port of its own, over TLS.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) material: Material,
    shutdown: Shutdown,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Served {
    /// Starts it, everything listed or not.
    pub(crate) async fn start(synced: bool) -> Self {
        let mut reviewer = ready();
        if !synced {
            reviewer.known = Known::new().0;
        }
        Self::serve(router(reviewer)).await
    }

    /// Starts one that answers one request at a time.
    async fn with_one_turn() -> (Self, Arc<Semaphore>) {
        let turns = Arc::new(Semaphore::new(1));
        let webhook = Webhook {
            reviewer: ready(),
            turns: turns.clone(),
        };
        let router = Router::new().fallback(super::review).with_state(webhook);
        (Self::serve(router).await, turns)
    }

    async fn serve(router: Router) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let material =
            || Material::parse(certificate.as_bytes(), certificate.as_bytes(), key.as_bytes()).unwrap();
        let (_publish, current) = watch::channel(Some(Arc::new(material())));
        let settings = TlsSettings::default();
        let (tls, _following) = tls::serving(current, &settings).await.unwrap().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let running = tokio::spawn(serve(listener, tls, router, shutdown.clone(), Duration::ZERO));
        Self {
            address,
            material: material(),
            shutdown,
            running,
        }
    }

    /// Sends the beginning of a review, of which the last byte is missing.
    async fn begin(&self) -> (impl AsyncReadAndWrite + use<>, Vec<u8>) {
        let mut stream = connect(self.address, &self.material).await.unwrap();
        let mut body = pod_review("Deployment").to_string().into_bytes();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let rest = body.split_off(body.len() - 1);
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        stream.flush().await.unwrap();
        (stream, rest)
    }

    pub(crate) async fn stop(self) -> SocketAddr {
        self.shutdown.request();
        self.running.await.unwrap().unwrap();
        self.address
    }
}

trait AsyncReadAndWrite: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> AsyncReadAndWrite for S {}

async fn status_line(stream: &mut impl AsyncReadAndWrite) -> String {
    let mut line = vec![0; "HTTP/1.1 200 OK".len()];
    stream.read_exact(&mut line).await.unwrap();
    String::from_utf8(line).unwrap()
}

/// Waits until the only turn is taken.
async fn taken(turns: &Semaphore) {
    while turns.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_under_way_is_answered_after_a_stop_and_no_new_one_is_taken() {
    let (served, turns) = Served::with_one_turn().await;
    let (mut stream, rest) = served.begin().await;
    taken(&turns).await;
    served.shutdown.request();
    while tokio::net::TcpStream::connect(served.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!served.running.is_finished(), "it waits for the request");
    stream.write_all(&rest).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(status_line(&mut stream).await, "HTTP/1.1 200 OK");
    drop(stream);
    served.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_gives_its_turn_back() {
    let (served, turns) = Served::with_one_turn().await;
    let (stream, _) = served.begin().await;
    taken(&turns).await;
    drop(stream);
    let (mut stream, rest) = served.begin().await;
    stream.write_all(&rest).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(status_line(&mut stream).await, "HTTP/1.1 200 OK");
    drop(stream);
    served.stop().await;
}

async fn post(reviewer: &Reviewer, content_type: &str, body: impl Into<Body>) -> (u16, String) {
    let request = Request::post("/any/path?x=y")
        .header(header::CONTENT_TYPE, content_type)
        .body(body.into())
        .unwrap();
    let response = router(reviewer.clone()).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 1 << 24).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn review(reviewer: &Reviewer, review: &Value) -> Value {
    let (status, body) = post(reviewer, "application/json", review.to_string()).await;
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    answer["response"].clone()
}

fn ready() -> Reviewer {
    let (reviewer, _wishes) = reviewer("Deployment");
    deployment(&reviewer);
    reviewer
}

#[tokio::test]
async fn a_pod_is_patched_on_any_path() {
    let response = review(&ready(), &pod_review("Deployment")).await;
    assert_eq!(response["uid"], "u");
    assert_eq!(response["allowed"], true);
    assert_eq!(response["patchType"], "JSONPatch");
    assert!(response["patch"].is_string());
}

#[tokio::test]
async fn the_content_type_is_exact() {
    for content_type in [
        "application/json; charset=utf-8",
        "text/plain",
        "APPLICATION/JSON",
        "",
    ] {
        let answer = post(&ready(), content_type, pod_review("Deployment").to_string()).await;
        assert_eq!(answer, (200, String::new()), "{content_type}");
    }
}

#[tokio::test]
async fn a_body_of_more_than_5_mib_is_refused_whether_it_says_so_or_not() {
    let too_large = (413, "request payload too large\n".to_owned());
    let whole = vec![b' '; MAX_BODY + 1];
    assert_eq!(post(&ready(), "application/json", whole.clone()).await, too_large);
    let chunks = whole
        .chunks(1 << 16)
        .map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec()))
        .collect::<Vec<_>>();
    let chunked = Body::from_stream(futures::stream::iter(chunks));
    assert_eq!(post(&ready(), "application/json", chunked).await, too_large);
    let mut fits = pod_review("Deployment").to_string().into_bytes();
    fits.resize(MAX_BODY, b' ');
    assert_eq!(post(&ready(), "application/json", fits).await.0, 200);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_review() {
    let broken = futures::stream::iter([Ok(b"{".to_vec()), Err(std::io::Error::other("gone"))]);
    let (status, _) = post(&ready(), "application/json", Body::from_stream(broken)).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn what_is_no_review_is_allowed_without_a_uid() {
    for body in ["", "{", "[]", "null", "{}", "{\"request\": 1}", "\u{feff}{}"] {
        let (status, text) = post(&ready(), "application/json", body).await;
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["response"], json!({"uid": "", "allowed": true}), "{body}");
    }
}

#[tokio::test]
async fn hostile_pods_are_answered() {
    let reviewer = ready();
    let mut hostile = Vec::new();
    let mut many = pod_review("Deployment");
    many["request"]["object"]["spec"]["containers"] = (0..1000)
        .map(|index| json!({"name": format!("c{index}"), "resources": {"requests": {"cpu": "1"}}}))
        .collect();
    hostile.push(many);
    let mut long = pod_review("Deployment");
    long["request"]["object"]["metadata"]["annotations"] =
        json!({"a": "\u{1f980}\u{0}\u{202e}".repeat(100_000)});
    hostile.push(long);
    for (field, value) in [
        ("spec", Value::Null),
        ("spec", json!([])),
        ("metadata", json!({"labels": {"app": 1}})),
        ("metadata", json!({"ownerReferences": [{}]})),
    ] {
        let mut pod = pod_review("Deployment");
        pod["request"]["object"][field] = value;
        hostile.push(pod);
    }
    for pod in hostile {
        let response = review(&reviewer, &pod).await;
        assert_eq!(
            (&response["uid"], &response["allowed"]),
            (&json!("u"), &json!(true))
        );
    }
}

#[tokio::test]
async fn an_invalid_vpa_is_denied() {
    let vpa = json!({"request": {
        "uid": "v", "operation": "CREATE",
        "resource": {"group": "autoscaling.k8s.io", "version": "v1", "resource": "verticalpodautoscalers"},
        "object": {"spec": {"updatePolicy": {"updateMode": "Sometimes"}}},
    }});
    let response = review(&ready(), &vpa).await;
    assert_eq!(response["allowed"], false);
    assert!(
        response["status"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("Sometimes")),
        "{response}"
    );
}

#[tokio::test]
async fn nothing_is_answered_before_everything_is_listed() {
    let (known, _wishes) = Known::new();
    let reviewer = Reviewer {
        known,
        metrics: Metrics::register(&mut Registry::default()),
        ..ready()
    };
    let (status, text) = post(&reviewer, "application/json", "{}").await;
    assert_eq!(
        (status, text.as_str()),
        (503, "not everything is listed yet; try again\n")
    );
}

#[tokio::test(start_paused = true)]
async fn so_many_at_once_and_no_more() {
    let reviewer = ready();
    let webhook = Webhook {
        reviewer,
        turns: Arc::new(Semaphore::new(1)),
    };
    let request = |body: Body| {
        Request::post("/")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .unwrap()
    };
    let slow = request(Body::from_stream(futures::stream::pending::<
        Result<Vec<u8>, std::io::Error>,
    >()));
    let (slow, refused) = tokio::join!(
        webhook.answer(slow),
        webhook.answer(request(Body::from(pod_review("Deployment").to_string())))
    );
    assert_eq!(slow.unwrap_err(), Refused::Unread, "its body never came");
    assert_eq!(refused.unwrap_err(), Refused::Overload);
    let next = webhook
        .answer(request(Body::from(pod_review("Deployment").to_string())))
        .await;
    assert_eq!(next.unwrap().status(), 200, "its turn is free again");
}

/// The reviewer of one that injects, and knows a set.
fn injecting() -> Reviewer {
    let reviewer = Reviewer {
        injector: injector(Mode::Inject),
        ..ready()
    };
    let set = json!({
        "metadata": {"name": "log"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "containers": [{"name": "agent", "image": "a", "podInjectPolicy": "AfterAppContainer"}],
        },
    });
    let set = serde_json::from_value(set).unwrap();
    reviewer.known.write().sidecarsets.apply_set(&set);
    reviewer
}

async fn post_to(reviewer: &Reviewer, path: &str, body: &Value) -> Value {
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = router(reviewer.clone()).oneshot(request).await.unwrap();
    let body = to_bytes(response.into_body(), 1 << 24).await.unwrap();
    serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)))
}

/// The containers of a pod of the shop after a review at this path.
async fn containers(reviewer: &Reviewer, path: &str, namespace: &str) -> String {
    let mut review = pod_review("Deployment");
    review["request"]["namespace"] = json!(namespace);
    let answer = post_to(reviewer, path, &review).await;
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    let mut pod = review["request"]["object"].clone();
    if let Some(patch) = answer["response"]["patch"].as_str() {
        let patch = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, patch).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut pod, &patch).unwrap();
    }
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let names = containers
        .iter()
        .map(|container| container["name"].as_str().unwrap());
    names.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn sidecars_are_injected_at_their_own_path_and_in_their_own_mode() {
    let injecting = injecting();
    assert_eq!(containers(&injecting, INJECT, "shop").await, "app agent");
    assert_eq!(containers(&injecting, "/", "shop").await, "app");
    assert_eq!(containers(&injecting, INJECT, "kube-system").await, "app");
    let sizing = Reviewer {
        injector: injector(Mode::Size),
        ..injecting.clone()
    };
    assert_eq!(containers(&sizing, INJECT, "shop").await, "app");
    let (not_yet, settled) = tokio::sync::watch::channel(false);
    let mut injector = injector(Mode::Inject);
    injector.settled = settled;
    let starting = Reviewer {
        injector,
        ..injecting
    };
    let answer = post_to(&starting, INJECT, &pod_review("Deployment")).await;
    assert_eq!(answer, json!("not everything is listed yet; try again\n"));
    not_yet.send_replace(true);
    assert_eq!(containers(&starting, INJECT, "shop").await, "app agent");
}

#[tokio::test]
async fn a_pod_whose_revision_is_missing_is_denied() {
    let reviewer = injecting();
    let mut set = (*reviewer.known.read().sidecarsets.sets.get("log").unwrap().object).clone();
    set.spec.injection_strategy =
        serde_json::from_value(json!({"revision": {"revisionName": "gone"}})).unwrap();
    reviewer.known.write().sidecarsets.apply_set(&set);
    let answer = post_to(&reviewer, INJECT, &pod_review("Deployment")).await;
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["code"], 403);
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("gone of SidecarSet log is not found"),
        "{message}"
    );
}

#[tokio::test]
async fn sets_are_reviewed_and_converted() {
    let set = json!({"apiVersion": "apps.kruise.io/v1beta1", "metadata": {"name": "bad"}, "spec": {}});
    let review = json!({"request": {
        "uid": "u", "operation": "CREATE", "name": "bad", "object": set,
        "resource": {"group": "apps.kruise.io", "version": "v1beta1", "resource": "sidecarsets"},
    }});
    let answer = post_to(&injecting(), "/mutate-apps-kruise-io-sidecarset", &review).await;
    assert_eq!(answer["response"]["allowed"], false);
    let answer = post_to(&ready(), "/mutate-apps-kruise-io-sidecarset", &review).await;
    assert_eq!(
        answer["response"]["allowed"], true,
        "beside Kruise that is its business"
    );
    let request = json!({"uid": "u", "desiredAPIVersion": "apps.kruise.io/v1alpha1", "objects": [set]});
    let answer = post_to(&ready(), CONVERT, &json!({"request": request})).await;
    assert_eq!(answer["response"]["result"]["status"], "Success");
}
