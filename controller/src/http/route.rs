//! One declaration per route: method, path, handler, access, audit verb and description.

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::SchemaGenerator;
use serde_json::Value;

use super::access::Access;
use super::operation::{DescribedHandler, Operation};
use super::{App, RouteRule};
use crate::audit::AuditVerb;

/// A route. The types of its handler describe the request and the response.
pub(super) struct Route {
    rule: RouteRule,
    summary: &'static str,
    handler: MethodRouter<App>,
    describe: DescribeFn,
    is_documented: bool,
}

type DescribeFn = fn(&mut Operation, &mut SchemaGenerator);

impl Route {
    pub fn get<H, T>(path: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + DescribedHandler<T>,
        T: 'static,
    {
        Self::new(Method::GET, path, on(MethodFilter::GET, handler), H::describe).audit(AuditVerb::Read)
    }

    pub fn post<H, T>(path: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + DescribedHandler<T>,
        T: 'static,
    {
        Self::new(Method::POST, path, on(MethodFilter::POST, handler), H::describe)
    }

    pub fn put<H, T>(path: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + DescribedHandler<T>,
        T: 'static,
    {
        Self::new(Method::PUT, path, on(MethodFilter::PUT, handler), H::describe)
    }

    pub fn delete<H, T>(path: &'static str, handler: H) -> Self
    where
        H: Handler<T, App> + DescribedHandler<T>,
        T: 'static,
    {
        Self::new(Method::DELETE, path, on(MethodFilter::DELETE, handler), H::describe)
    }

    fn new(method: Method, path: &'static str, handler: MethodRouter<App>, describe: DescribeFn) -> Self {
        let rule = RouteRule { method, path, ..RouteRule::unknown() };
        Self { rule, summary: "", handler, describe, is_documented: true }
    }

    /// Sets the right that a caller needs. Without it, only administrators may call.
    pub fn access(mut self, access: Access) -> Self {
        self.rule.access = access;
        self
    }

    /// Sets the name in the audit log.
    pub fn audit(mut self, verb: AuditVerb) -> Self {
        self.rule.verb = verb;
        self
    }

    pub fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Leaves the route out of the OpenAPI document.
    pub fn undocumented(mut self) -> Self {
        self.is_documented = false;
        self
    }

    pub fn title(&self) -> &'static str {
        self.summary
    }

    pub fn rule(&self) -> &RouteRule {
        &self.rule
    }

    /// Returns the entry in the OpenAPI document.
    pub fn operation(&self, types: &mut SchemaGenerator) -> Option<Value> {
        if !self.is_documented {
            return None;
        }
        let mut operation = Operation::new(self.rule.path, self.summary, types);
        (self.describe)(&mut operation, types);
        Some(operation.into_json())
    }
}

/// Returns a router of all routes.
pub(super) fn router(routes: Vec<Route>) -> Router<App> {
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.rule.path, route.handler))
}
