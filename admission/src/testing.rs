//! An API server of one object, for tests of what is written and in which order.

use std::sync::{Arc, Mutex};

use axum::http::{Method, Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::Barrier;

/// The object and what was asked for it. Cloning gives another handle to the same.
#[derive(Clone)]
pub(crate) struct OneObject {
    state: Arc<Mutex<State>>,
    /// The first time so many reads are answered together, all as it was before whatever comes of them.
    reads: Arc<Barrier>,
}

#[derive(Default)]
struct State {
    object: Option<Value>,
    version: u64,
    asked: Vec<String>,
    met: bool,
}

impl OneObject {
    pub(crate) fn new(readers: usize) -> Self {
        Self {
            state: Arc::default(),
            reads: Arc::new(Barrier::new(readers)),
        }
    }

    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// The methods of the requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    pub(crate) fn object(&self) -> Option<Value> {
        self.state.lock().unwrap().object.clone()
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let method = request.method().clone();
        let body = request.into_body().collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (meets, (code, answer)) = {
            let mut state = self.state.lock().unwrap();
            state.asked.push(method.to_string());
            (method == Method::GET && !state.met, state.write(&method, body))
        };
        if meets {
            self.reads.wait().await;
            self.state.lock().unwrap().met = true;
        }
        Response::builder()
            .status(code)
            .body(Body::from(answer.to_string().into_bytes()))
            .unwrap()
    }
}

impl State {
    fn write(&mut self, method: &Method, body: Value) -> (u16, Value) {
        let refused = |code: u16, reason: &str| {
            let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code});
            (code, status)
        };
        let mut next = match (&self.object, method.as_str()) {
            (Some(object), "GET") => return (200, object.clone()),
            (None, "POST") => body,
            (Some(_), "POST") => return refused(409, "AlreadyExists"),
            (Some(object), "PUT" | "PATCH") => {
                let version = &body["metadata"]["resourceVersion"];
                if *version != object["metadata"]["resourceVersion"] {
                    return refused(409, "Conflict");
                }
                let mut next = object.clone();
                json_patch::merge(&mut next, &body);
                next
            }
            (Some(_), _) => return refused(405, "MethodNotAllowed"),
            (None, _) => return refused(404, "NotFound"),
        };
        self.version += 1;
        next["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.object = Some(next.clone());
        (200, next)
    }
}
