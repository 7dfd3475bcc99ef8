//! The client's requests, a method for each.

use super::{Client, ClientError, broken_answer, escape, read};
use crate::body::{
    AclAdd, AclBody, CaptureBody, CountersBody, EventBody, FlowsBody, HealthBody, HistoryBody,
    LogBody, LogChange, MacBody, MtuBody, PageKeyBody, PlanBody, PortBody, QueueBody, QueueMove,
    RscBody, RscChange, RscSetting, RssBody, RssChange, SourceBody, SwitchBody, SwitchRscBody,
    SwitchRscChange, TeamBody, TeamChange, TeamMapping, TraceBody, TraceRequest, VmmqLoadBody,
    VmmqMoveBody,
};
use config::{Config, PortConfig};
use hyper::Method;
use hyper::body::Bytes;

impl Client {
    /// Returns the switch as a whole.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn switch(&self) -> Result<SwitchBody, ClientError> {
        self.get("/v1/switch")
    }

    /// Returns the history of the switch, or of a port. `query` has the parameters of the resource,
    /// such as `range_s=600`; empty for their defaults.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port or range.
    pub fn history(&self, port: Option<&str>, query: &str) -> Result<HistoryBody, ClientError> {
        let port = port.map(|port| format!("port={}&", escape(port))).unwrap_or_default();
        self.get(&format!("/v1/history?{port}{query}"))
    }

    /// Returns the flows of the last minutes. `query` has the parameters of the resource, such as
    /// `drops=true`; empty for their defaults.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn flows(&self, port: Option<&str>, query: &str) -> Result<FlowsBody, ClientError> {
        let port = port.map(|port| format!("port={}&", escape(port))).unwrap_or_default();
        self.get(&format!("/v1/flows?{port}{query}"))
    }

    /// Returns a new key of the page, for this process's user or, if root asks, for another.
    ///
    /// # Errors
    /// The daemon does not answer, has no page, or does not issue a key of another user.
    pub fn issue_page_key(&self, user: Option<u32>) -> Result<PageKeyBody, ClientError> {
        let user = user.map(|user| format!("?user={user}")).unwrap_or_default();
        self.post(&format!("/v1/page/keys{user}"), &())
    }

    /// Ends all keys of the page.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn end_page_keys(&self) -> Result<(), ClientError> {
        self.delete("/v1/page/keys")
    }

    /// Returns all ports, by name.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn ports(&self) -> Result<Vec<PortBody>, ClientError> {
        self.get("/v1/ports")
    }

    /// Returns one port.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn port(&self, name: &str) -> Result<PortBody, ClientError> {
        self.get(&format!("/v1/ports/{}", escape(name)))
    }

    /// Returns a port with the tag of its settings.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn tagged_port(&self, name: &str) -> Result<(PortBody, String), ClientError> {
        self.get_tagged(&format!("/v1/ports/{}", escape(name)))
    }

    /// Changes keys of a port if its settings still have this tag. Returns the port.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change, for example because the settings have
    /// another tag by now.
    pub fn change_tagged_port(
        &self,
        name: &str,
        change: &serde_json::Value,
        etag: &str,
    ) -> Result<PortBody, ClientError> {
        let body = serde_json::to_vec(change).map_err(|error| broken_answer(&error))?;
        let path = format!("/v1/ports/{}", escape(name));
        read(&self.request(Method::PATCH, &path, body.into(), Some(etag))?)
    }

    /// Adds a port, and returns it.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the port.
    pub fn add_port(&self, port: &PortConfig) -> Result<PortBody, ClientError> {
        self.send(Method::POST, "/v1/ports", port)
    }

    /// Changes keys of a port, spelled as in the file; null removes a key. Returns the port.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change.
    pub fn change_port(
        &self,
        name: &str,
        change: &serde_json::Value,
    ) -> Result<PortBody, ClientError> {
        self.patch(&format!("/v1/ports/{}", escape(name)), change)
    }

    /// Removes a port.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn remove_port(&self, name: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/ports/{}", escape(name)))
    }

    /// Returns a port's counters since it was opened.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn counters(&self, name: &str) -> Result<CountersBody, ClientError> {
        self.get(&format!("/v1/ports/{}/counters", escape(name)))
    }

    /// Returns the rules of a port, with counters.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn acl(&self, name: &str) -> Result<AclBody, ClientError> {
        self.get(&format!("/v1/ports/{}/acl", escape(name)))
    }

    /// Returns the rules of a port with their tag.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn tagged_acl(&self, name: &str) -> Result<(AclBody, String), ClientError> {
        self.get_tagged(&format!("/v1/ports/{}/acl", escape(name)))
    }

    /// Adds a rule to a port; it is in force when this returns. Returns all rules.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change.
    pub fn add_rule(&self, name: &str, rule: &AclAdd) -> Result<AclBody, ClientError> {
        self.post(&format!("/v1/ports/{}/acl", escape(name)), rule)
    }

    /// Removes a port's rule of this number, if the rules still have this tag. Returns the other
    /// rules.
    ///
    /// # Errors
    /// The daemon does not answer, there is no such port or rule, or the rules have another tag by
    /// now.
    pub fn remove_tagged_rule(
        &self,
        name: &str,
        number: usize,
        etag: &str,
    ) -> Result<AclBody, ClientError> {
        let path = format!("/v1/ports/{}/acl/{number}", escape(name));
        read(&self.request(Method::DELETE, &path, Bytes::new(), Some(etag))?)
    }

    /// Returns the levels of the log.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn log(&self) -> Result<LogBody, ClientError> {
        self.get("/v1/log")
    }

    /// Sets a level of the log until the daemon stops. Returns all levels.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change.
    pub fn set_log(&self, change: &LogChange) -> Result<LogBody, ClientError> {
        self.put("/v1/log", change)
    }

    /// Returns the state of coalescing toward one port, or toward all.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn rsc(&self, port: Option<&str>) -> Result<Vec<RscBody>, ClientError> {
        match port {
            Some(name) => Ok(vec![self.get(&format!("/v1/ports/{}/rsc", escape(name)))?]),
            None => self.get("/v1/rsc"),
        }
    }

    /// Toggles coalescing on one port, or on all; it is done when this returns. Returns its state.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change.
    pub fn set_rsc(
        &self,
        port: Option<&str>,
        policy: RscSetting,
    ) -> Result<Vec<RscBody>, ClientError> {
        let change = RscChange { policy };
        match port {
            Some(name) => Ok(vec![self.put(&format!("/v1/ports/{}/rsc", escape(name)), &change)?]),
            None => self.put("/v1/rsc", &change),
        }
    }

    /// Returns the state of coalescing on the host and in the switch.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn switch_rsc(&self) -> Result<SwitchRscBody, ClientError> {
        self.get("/v1/switch/rsc")
    }

    /// Turns coalescing of the whole switch on or off; it is done when this returns. Returns its
    /// state.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change.
    pub fn set_switch_rsc(&self, is_on: bool) -> Result<SwitchRscBody, ClientError> {
        self.put("/v1/switch/rsc", &SwitchRscChange { software_rsc_enabled: is_on })
    }

    /// Returns how frames toward one port, or toward all, are spread over its queues.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn rss(&self, port: Option<&str>) -> Result<Vec<RssBody>, ClientError> {
        match port {
            Some(name) => Ok(vec![self.get(&format!("/v1/ports/{}/rss", escape(name)))?]),
            None => self.get("/v1/rss"),
        }
    }

    /// Changes how frames toward a port are spread; the change is in force when this returns.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change.
    pub fn change_rss(&self, port: &str, change: &RssChange) -> Result<RssBody, ClientError> {
        self.patch(&format!("/v1/ports/{}/rss", escape(port)), change)
    }

    /// Returns one team, or all.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such team.
    pub fn teams(&self, port: Option<&str>) -> Result<Vec<TeamBody>, ClientError> {
        match port {
            Some(name) => Ok(vec![self.get(&format!("/v1/teams/{}", escape(name)))?]),
            None => self.get("/v1/teams"),
        }
    }

    /// Adds members to a team and removes others; it is done when this returns. Returns the team.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change.
    pub fn change_team(&self, port: &str, change: &TeamChange) -> Result<TeamBody, ClientError> {
        self.patch(&format!("/v1/teams/{}", escape(port)), change)
    }

    /// Pins a vNIC to a member of a team, or unpins it. Returns the team.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change.
    pub fn map_team(&self, port: &str, mapping: &TeamMapping) -> Result<TeamBody, ClientError> {
        self.put(&format!("/v1/teams/{}/mappings", escape(port)), mapping)
    }

    /// Returns which worker serves which queue.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn queues(&self) -> Result<Vec<QueueBody>, ClientError> {
        self.get("/v1/queues")
    }

    /// Moves a queue to another worker, which has it when this returns.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the change.
    pub fn move_queue(
        &self,
        port: &str,
        queue: usize,
        worker: usize,
    ) -> Result<QueueBody, ClientError> {
        self.put(&format!("/v1/ports/{}/queues/{queue}", escape(port)), &QueueMove { worker })
    }

    /// Returns the last moves of queues by load, oldest first.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn vmmq_moves(&self) -> Result<Vec<VmmqMoveBody>, ClientError> {
        self.get("/v1/vmmq/moves")
    }

    /// Returns the balancer's measurements, as sums so far.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn vmmq_load(&self) -> Result<VmmqLoadBody, ClientError> {
        self.get("/v1/vmmq/load")
    }

    /// Returns the learned addresses.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn macs(&self) -> Result<Vec<MacBody>, ClientError> {
        self.get("/v1/macs")
    }

    /// Forgets learned addresses: those of a port, or all.
    ///
    /// # Errors
    /// The daemon does not answer, or there is no such port.
    pub fn forget_macs(&self, port: Option<&str>) -> Result<(), ClientError> {
        match port {
            Some(port) => self.delete(&format!("/v1/macs?port={}", escape(port))),
            None => self.delete("/v1/macs"),
        }
    }

    /// Returns events with a greater number than `after`, oldest first.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn events(&self, after: u64) -> Result<Vec<EventBody>, ClientError> {
        self.get(&format!("/v1/events?after={after}"))
    }

    /// Returns what the switch would do with frames.
    ///
    /// # Errors
    /// The daemon does not answer, or the request names what it does not know.
    pub fn trace(&self, request: &TraceRequest) -> Result<TraceBody, ClientError> {
        self.post("/v1/trace", request)
    }

    /// Returns the findings of the configuration's check.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn health(&self) -> Result<HealthBody, ClientError> {
        self.get("/v1/health")
    }

    /// Returns the MTUs of ports and devices.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn mtu(&self) -> Result<MtuBody, ClientError> {
        self.get("/v1/mtu")
    }

    /// Returns the running configuration.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn config(&self) -> Result<Config, ClientError> {
        self.get("/v1/config")
    }

    /// Returns the configuration file, and the file that stores ports added through the API.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn config_source(&self) -> Result<SourceBody, ClientError> {
        self.get("/v1/config/source")
    }

    /// Has the daemon reread its file. Returns the steps; a dry run does no more than that.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the file.
    pub fn reload_config(&self, dry_run: bool) -> Result<PlanBody, ClientError> {
        let path = format!("/v1/config/reload?dry_run={dry_run}");
        read(&self.request(Method::POST, &path, Bytes::new(), None)?)
    }

    /// Replaces the running configuration if it still has this tag. Returns the steps.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the configuration, for example because the running
    /// one has another tag by now.
    pub fn replace_config(&self, config: &Config, etag: &str) -> Result<PlanBody, ClientError> {
        let body = serde_json::to_vec(config).map_err(|error| broken_answer(&error))?;
        read(&self.request(Method::PUT, "/v1/config", body.into(), Some(etag))?)
    }

    /// Replaces the running configuration. Returns the steps; a dry run does no more than that.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the configuration.
    pub fn put_config(&self, config: &Config, dry_run: bool) -> Result<PlanBody, ClientError> {
        self.put(&format!("/v1/config?dry_run={dry_run}"), config)
    }

    /// Replaces the fleet's ports on this host with those of this revision. Returns the steps.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the ports.
    pub fn put_fleet(&self, revision: u64, ports: &[PortConfig]) -> Result<PlanBody, ClientError> {
        self.put(&format!("/v1/config/fleet?revision={revision}"), &ports)
    }

    /// Returns the steps that would replace the fleet's ports on this host.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the ports.
    pub fn plan_fleet(&self, ports: &[PortConfig]) -> Result<PlanBody, ClientError> {
        self.put("/v1/config/fleet?dry_run=true", &ports)
    }

    /// Returns the last capture on a port.
    ///
    /// # Errors
    /// The daemon does not answer, or nothing was captured there.
    pub fn capture(&self, port: &str) -> Result<CaptureBody, ClientError> {
        self.get(&format!("/v1/captures/{}", escape(port)))
    }

    /// Stops a capture, and returns it. Its client still receives the rest.
    ///
    /// # Errors
    /// The daemon does not answer, or nothing is captured there.
    pub fn stop_capture(&self, port: &str) -> Result<CaptureBody, ClientError> {
        let path = format!("/v1/captures/{}", escape(port));
        read(&self.request(Method::DELETE, &path, Bytes::new(), None)?)
    }
}
