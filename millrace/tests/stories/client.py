"""Drives the daemon through the client that was generated from its OpenAPI document. Run by openapi.rs, in /run."""

import httpx
from client import Client
from client.api.config import replace_config, show_config
from client.api.ports import add_port, change_port, list_ports, remove_port, show_counters, show_port
from client.api.rsc import set_rsc
from client.api.switch import show_health, show_metrics, show_switch
from client.models import PortBody, PortChange, PortConfig, Problem, RscChange, RscMode, RscSetting

socket = httpx.HTTPTransport(uds="/run/millrace/api.sock")
client = Client(base_url="http://localhost", httpx_args={"transport": socket})

# Settings of each type: number, text or number, boolean, one of several words.
added = add_port.sync(client=client, body=PortConfig(name="007", tap="tap1", mtu=9000, rate="1Gbit", isolated=True))
assert isinstance(added, PortBody) and added.config.rate == "1Gbit", added
assert [port.name for port in list_ports.sync(client=client)] == ["007"]
changed = change_port.sync("007", client=client, body=PortChange(rate=None, isolated=None, vlan=10, rsc=RscMode.GRO))
assert changed.vlan == "access 10" and changed.rsc == RscMode.GRO, changed
assert show_port.sync("007", client=client).config.mtu == 9000
assert set_rsc.sync("007", client=client, body=RscChange(policy=RscSetting.OFF)).policy == RscMode.OFF
assert show_counters.sync("007", client=client).egress_frames >= 0

# The configuration is read and written. The workers can be a number or a list of cores.
config = show_config.sync(client=client)
config.switch.workers = [0]
plan = replace_config.sync(client=client, body=config, dry_run=True)
assert not plan.applied and len(plan.steps) == 1, plan

# A refusal is a problem with a remedy, whatever its status.
problem = show_port.sync("008", client=client)
assert isinstance(problem, Problem) and "007" in problem.remedy, problem
answer = change_port.sync_detailed("007", client=client, body=PortChange(mtu=20))
assert answer.status_code == 422 and "68 to 65535" in answer.parsed.wanted, answer

assert remove_port.sync_detailed("007", client=client).status_code == 204
assert show_switch.sync(client=client).ports == 0
assert show_health.sync(client=client).healthy
assert b"millrace_macs" in show_metrics.sync_detailed(client=client).content
print("all answered")
