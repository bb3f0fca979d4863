//! Questions to workers: requests that the servers do not store.

use std::time::Duration;

use allstop_core::WorkerId;
use allstop_log::{LogError, StreamName};
use allstop_task::AskedQuestion;
use async_nats::Request;
use async_nats::client::RequestErrorKind;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::timeout;

use super::LinkParts;
use crate::client::errors::{self, RequestFailure};
use crate::client::store::REQUEST_MAX;
use crate::client::subject::tokens_of;

impl LinkParts {
    fn worker_subject(&self, worker: &WorkerId) -> String {
        let id = tokens_of(&StreamName::new(worker.as_str()));
        format!("{}.worker.{id}", self.store.options.prefix)
    }

    pub(super) async fn ask(
        &self,
        worker: &WorkerId,
        question: Vec<u8>,
        max: Duration,
    ) -> Result<Option<Vec<u8>>, LogError> {
        let store = &self.store;
        store
            .check_connection()
            .map_err(RequestFailure::into_error)?;
        let request = Request::new().payload(question.into()).timeout(Some(max));
        let subject = self.worker_subject(worker);
        match store.client.send_request(subject, request).await {
            Ok(answer) => Ok(Some(answer.payload.to_vec())),
            Err(error) => match error.kind() {
                RequestErrorKind::TimedOut | RequestErrorKind::NoResponders => Ok(None),
                _ => Err(errors::unreachable("question", error)),
            },
        }
    }

    pub(super) async fn questions(
        &self,
        worker: &WorkerId,
    ) -> Result<BoxStream<'static, AskedQuestion>, LogError> {
        let client = self.store.client.clone();
        let subscribed = timeout(REQUEST_MAX, client.subscribe(self.worker_subject(worker))).await;
        let subscribed = subscribed.map_err(|_elapsed| errors::disconnected("subscribe"))?;
        let asked = subscribed.map_err(|error| errors::unreachable("subscribe", error))?;
        let questions = asked.filter_map(move |message| {
            let client = client.clone();
            let question = message.reply.map(|reply| AskedQuestion {
                question: message.payload.to_vec(),
                answer: Box::new(move |answer| {
                    async move {
                        if let Err(error) = client.publish(reply, answer.into()).await {
                            tracing::debug!(%error, "an answer is lost");
                        }
                    }
                    .boxed()
                }),
            });
            std::future::ready(question)
        });
        Ok(questions.boxed())
    }
}
