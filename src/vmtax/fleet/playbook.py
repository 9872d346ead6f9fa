"""The playbook for Ansible, which works without vmtax's own command too: in AWX, Semaphore or cron. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from vmtax.core.errors import BUSY, BadInput
from vmtax.fleet.inventory import TEMPLATE

DELAY_SECONDS = 30  # before a busy host is tried again
RETRIES = 2880  # of a busy host: a day
PLAYBOOK = """\
# Measures each host of an inventory once with vmtax, which is on the controller only: hosts need ssh and python3.
# It may be repeated, and run in several places at once: what is finished is done at once, what was stopped goes on.
# Controllers share one store: VMTAX_STORE=postgresql://USER@HOST/DATABASE in the environment of each.
- name: Measure with vmtax
  hosts: all
  strategy: ansible.builtin.host_pinned # a slow host holds up no other
  gather_facts: false
  vars:
    vmtax_command: {command}
    vmtax_plan: {plan}
    vmtax_fleet: {fleet}
    vmtax_options: {options}
    vmtax_host: >-
      {{%- set its = hostvars[inventory_hostname] -%}}
      {{%- set at = its.ansible_ssh_host | default(its.ansible_host, true) | default(inventory_hostname, true) -%}}
      {{%- set user = its.ansible_ssh_user | default(its.ansible_user, true) | default('', true) -%}}
      {{%- set port = its.ansible_ssh_port | default(its.ansible_port, true) | default('', true) -%}}
      {{{{ 'local' if (its.ansible_connection | default('', true)).split('.')[-1] == 'local' else 'ssh://'
      ~ (user ~ '@' if user else '') ~ ('[' ~ at ~ ']' if ':' in at and at[0] != '[' else at)
      ~ (':' ~ port if port else '') }}}}
    ansible_become: false
  tasks:
    - name: Measure
      when: not (vmtax_exclusive | default(false) | bool)
      <<: &measure
        delegate_to: localhost
        ansible.builtin.command: # words, which no shell reads
          argv: >-
            {{{{ vmtax_command + ['run', vmtax_plan, '--host', vmtax_host, '--fleet', vmtax_fleet, '--yes']
            + vmtax_options }}}}
          chdir: "{{{{ playbook_dir }}}}" # for the reports
        register: measured
        until: measured.rc | default(0) != {busy} # somebody else measures there
        retries: {retries}
        delay: {delay}
        changed_when: "'done already' not in measured.stderr"
    - name: Measure one after another what shares a chassis or a switch (vmtax_exclusive)
      when: vmtax_exclusive | default(false) | bool
      throttle: 1
      <<: *measure
"""


def playbook(plan: str, fleet: str, options: Sequence[str], command: Sequence[str] = ("vmtax",)) -> str:
    """`options`: of `vmtax run`, on each host. Raises BadInput."""
    for text in (plan, fleet, *options, *command):
        if any(mark in text for mark in TEMPLATE):
            raise BadInput(f"{text!r}: Ansible would compute what stands between {{ and }}; name it otherwise")
    return PLAYBOOK.format(
        plan=json.dumps(plan),
        fleet=json.dumps(fleet),
        options=json.dumps(list(options)),
        command=json.dumps(list(command)),
        busy=BUSY,
        retries=RETRIES,
        delay=DELAY_SECONDS,
    )
