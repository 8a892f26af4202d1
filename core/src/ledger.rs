//! Tracks the used resources of a runner's nodes: CPUs, memory in bytes, GPUs by device.
//!
//! A reservation cannot be copied, only released or moved, so nothing is freed twice. The holder and the end of a
//! reservation are not known here.

use torc_api::wire::Resources;

#[cfg(test)]
mod tests;

/// The strategy by which jobs count against a runner's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By the resources that they declare.
    Resources,
    /// By their number alone, whatever they declare.
    Slots(u32),
}

/// The nodes that a reservation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeScope {
    /// Only the first node: the runner lives there and starts processes nowhere else.
    FirstNode,
    /// Any node: srun chooses it.
    AnyNode,
}

/// The resources of a runner's nodes and what is free. All nodes are equal.
#[derive(Debug)]
pub struct Ledger {
    strategy: Strategy,
    /// The resources of one node.
    node: Resources,
    nodes: Vec<NodeState>,
    free_slots: u32,
    /// Names of the GPUs of every node.
    devices: Vec<String>,
}

/// The free resources of a node.
#[derive(Debug)]
struct NodeState {
    free: Resources,
    /// Sorted by position, highest last, so that the lowest device is given out first.
    free_devices: Vec<usize>,
    /// New reservations use only nodes in service.
    in_service: bool,
}

/// Reserved resources of a runner, which [`Ledger::release`] frees.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped reservation is lost to its ledger"]
pub struct Reservation {
    slots: u32,
    pieces: Vec<NodeReservation>,
}

/// The resources taken from one node.
#[derive(Debug, PartialEq, Eq)]
struct NodeReservation {
    node: usize,
    amounts: Resources,
    devices: Vec<usize>,
}

impl Ledger {
    /// Creates a ledger without reservations. `capacity` is that of all nodes together, `devices` are the GPUs of
    /// each node.
    pub fn new(strategy: Strategy, capacity: Resources, devices: Vec<String>) -> Self {
        let count = capacity.nodes.max(1);
        let node = Resources {
            cpus: capacity.cpus.max(0) / count,
            memory_bytes: capacity.memory_bytes.max(0) / count,
            gpus: i64::try_from(devices.len()).unwrap_or(i64::MAX),
            nodes: 1,
        };
        let free_slots = match strategy {
            Strategy::Slots(slots) => slots,
            Strategy::Resources => u32::MAX,
        };
        let free_devices: Vec<usize> = (0..devices.len()).rev().collect();
        let nodes = (0..count)
            .map(|_| NodeState { free: node, free_devices: free_devices.clone(), in_service: true })
            .collect();
        Self { strategy, node, nodes, free_slots, devices }
    }

    /// Returns the capacity of all nodes.
    pub fn capacity(&self) -> Resources {
        total(self.nodes.iter().map(|_| self.node))
    }

    /// Returns the free resources of nodes in service. Its number of nodes counts the idle ones.
    pub fn free(&self) -> Resources {
        total(
            self.nodes
                .iter()
                .filter(|node| node.in_service)
                .map(|node| Resources { nodes: i64::from(node.free == self.node), ..node.free }),
        )
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Sets whether new reservations may use a node. Existing ones stay.
    pub fn set_in_service(&mut self, node: usize, in_service: bool) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.in_service = in_service;
        }
    }

    /// Returns whether new reservations may use a node.
    pub fn is_in_service(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.in_service)
    }

    /// Returns the number of jobs that may still start under the queue strategy; none for the other strategy.
    pub fn free_slots(&self) -> Option<u32> {
        match self.strategy {
            Strategy::Slots(_) if !self.nodes.iter().any(|node| node.in_service) => Some(0),
            Strategy::Slots(_) => Some(self.free_slots),
            Strategy::Resources => None,
        }
    }

    /// Returns whether a job would fit if all nodes were idle.
    pub fn can_ever_fit(&self, need: &Resources) -> bool {
        match self.strategy {
            Strategy::Slots(slots) => slots > 0,
            Strategy::Resources => {
                covers(&self.node, need) && usize::try_from(need.nodes).unwrap_or(0) <= self.nodes.len()
            }
        }
    }

    /// Reserves the resources of a job; none if they are not free. A job of several nodes takes whole nodes.
    pub fn reserve(&mut self, need: &Resources, scope: NodeScope) -> Option<Reservation> {
        if !self.can_ever_fit(need) {
            return None;
        }
        if let Some(slots) = self.free_slots() {
            self.free_slots = slots.checked_sub(1)?;
            return Some(Reservation { slots: 1, pieces: Vec::new() });
        }
        let chosen = self.choose(need, scope)?;
        let taken = if need.nodes > 1 { self.node } else { *need };
        let pieces = chosen.into_iter().map(|node| self.take(node, &taken)).collect();
        Some(Reservation { slots: 0, pieces })
    }

    /// Returns the nodes that can run a job now, if there are enough.
    fn choose(&self, need: &Resources, scope: NodeScope) -> Option<Vec<usize>> {
        if need.nodes > 1 {
            let count = usize::try_from(need.nodes).ok()?;
            let whole = |at: &usize| self.nodes[*at].in_service && self.nodes[*at].free == self.node;
            let chosen: Vec<usize> = (0..self.nodes.len()).filter(whole).take(count).collect();
            // The command of a multi-node job starts on the node of the runner.
            let is_here = scope == NodeScope::AnyNode || chosen.first() == Some(&0);
            return (chosen.len() == count && is_here).then_some(chosen);
        }
        let within = if scope == NodeScope::FirstNode { 1 } else { self.nodes.len() };
        let has_room = |node: &NodeState| node.in_service && covers(&node.free, need);
        self.nodes.iter().take(within).position(has_room).map(|node| vec![node])
    }

    fn take(&mut self, at: usize, amounts: &Resources) -> NodeReservation {
        let node = &mut self.nodes[at];
        let amounts = Resources {
            cpus: amounts.cpus.max(0),
            memory_bytes: amounts.memory_bytes.max(0),
            gpus: amounts.gpus.max(0),
            nodes: 0,
        };
        let kept = node.free_devices.len().saturating_sub(usize::try_from(amounts.gpus).unwrap_or(0));
        let mut devices = node.free_devices.split_off(kept);
        devices.reverse();
        node.free.cpus -= amounts.cpus;
        node.free.memory_bytes -= amounts.memory_bytes;
        node.free.gpus -= amounts.gpus;
        NodeReservation { node: at, amounts, devices }
    }

    /// Reserves these devices on these nodes for a job that already runs with them. Devices and nodes that no longer
    /// exist are left out. Amounts are reserved only as far as they are free, because the job runs anyway.
    pub fn adopt(&mut self, need: &Resources, devices: &[String], nodes: &[usize]) -> Reservation {
        if let Strategy::Slots(_) = self.strategy {
            let slots = u32::from(self.free_slots > 0);
            self.free_slots -= slots;
            return Reservation { slots, pieces: Vec::new() };
        }
        let count = self.nodes.len();
        let known = nodes.iter().copied().filter(|at| *at < count);
        let pieces = known.map(|at| self.adopt_on(at, need, devices)).collect();
        Reservation { slots: 0, pieces }
    }

    fn adopt_on(&mut self, at: usize, need: &Resources, devices: &[String]) -> NodeReservation {
        let need = if need.nodes > 1 { &self.node } else { need };
        let node = &mut self.nodes[at];
        let taken: Vec<usize> = (0..self.devices.len())
            .filter(|&device| devices.contains(&self.devices[device]) && node.free_devices.contains(&device))
            .collect();
        node.free_devices.retain(|device| !taken.contains(device));
        let amounts = Resources {
            cpus: need.cpus.clamp(0, node.free.cpus),
            memory_bytes: need.memory_bytes.clamp(0, node.free.memory_bytes),
            gpus: i64::try_from(taken.len()).unwrap_or(0),
            nodes: 0,
        };
        node.free.cpus -= amounts.cpus;
        node.free.memory_bytes -= amounts.memory_bytes;
        node.free.gpus -= amounts.gpus;
        NodeReservation { node: at, amounts, devices: taken }
    }

    /// Frees the resources of a reservation.
    pub fn release(&mut self, reservation: Reservation) {
        self.free_slots = self.free_slots.saturating_add(reservation.slots);
        for piece in reservation.pieces {
            let node = &mut self.nodes[piece.node];
            node.free.cpus += piece.amounts.cpus;
            node.free.memory_bytes += piece.amounts.memory_bytes;
            node.free.gpus += piece.amounts.gpus;
            node.free_devices.extend(piece.devices);
            node.free_devices.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    /// Returns the names of a reservation's GPUs on its first node.
    pub fn device_names(&self, reservation: &Reservation) -> Vec<String> {
        let first = reservation.pieces.first().map_or(&[][..], |piece| &piece.devices);
        first.iter().filter_map(|&at| self.devices.get(at).cloned()).collect()
    }
}

impl Reservation {
    /// Returns the nodes of the reservation.
    pub fn nodes(&self) -> Vec<usize> {
        self.pieces.iter().map(|piece| piece.node).collect()
    }
}

fn total(parts: impl Iterator<Item = Resources>) -> Resources {
    parts.fold(Resources::default(), |sum, part| Resources {
        cpus: sum.cpus.saturating_add(part.cpus),
        memory_bytes: sum.memory_bytes.saturating_add(part.memory_bytes),
        gpus: sum.gpus.saturating_add(part.gpus),
        nodes: sum.nodes.saturating_add(part.nodes),
    })
}

fn covers(have: &Resources, need: &Resources) -> bool {
    need.cpus <= have.cpus && need.memory_bytes <= have.memory_bytes && need.gpus <= have.gpus
}
