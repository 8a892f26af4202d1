//! What a node has and what of it is taken: CPUs, memory in bytes, GPUs by device.
//!
//! A reservation is a value that exists once: it can be given back, moved to a successor, but not copied, so nothing is
//! freed twice. Deliberately absent: who holds it, when it ends, and jobs that span nodes.

use torc_api::wire::Resources;

#[cfg(test)]
mod tests;

/// How jobs are counted against a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By what they declare.
    Resources,
    /// By their number alone, whatever they declare.
    Slots(u32),
}

/// What a node has and what of it is free.
#[derive(Debug)]
pub struct Ledger {
    strategy: Strategy,
    capacity: Resources,
    free: Resources,
    free_slots: u32,
    /// Sorted by position, highest last, so that the lowest device is given out first.
    free_devices: Vec<usize>,
    devices: Vec<String>,
}

/// Part of a node, taken. Give it back with [`Ledger::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped reservation is lost to its ledger"]
pub struct Reservation {
    amounts: Resources,
    slots: u32,
    devices: Vec<usize>,
}

impl Ledger {
    /// A node on which nothing is taken. The number of GPUs is that of the devices.
    pub fn new(strategy: Strategy, capacity: Resources, devices: Vec<String>) -> Self {
        let capacity = Resources {
            cpus: capacity.cpus.max(0),
            memory_bytes: capacity.memory_bytes.max(0),
            gpus: i64::try_from(devices.len()).unwrap_or(i64::MAX),
            nodes: capacity.nodes.max(1),
        };
        let free_slots = match strategy {
            Strategy::Slots(slots) => slots,
            Strategy::Resources => u32::MAX,
        };
        Self {
            strategy,
            capacity,
            free: capacity,
            free_slots,
            free_devices: (0..devices.len()).rev().collect(),
            devices,
        }
    }

    /// Everything the node has.
    pub fn capacity(&self) -> Resources {
        self.capacity
    }

    /// What is not taken.
    pub fn free(&self) -> Resources {
        self.free
    }

    /// How many more jobs may start when jobs are counted by their number; absent when they are not.
    pub fn free_slots(&self) -> Option<u32> {
        match self.strategy {
            Strategy::Slots(_) => Some(self.free_slots),
            Strategy::Resources => None,
        }
    }

    /// The node could take it if nothing else were there.
    pub fn can_ever_fit(&self, need: &Resources) -> bool {
        match self.strategy {
            Strategy::Slots(slots) => slots > 0,
            Strategy::Resources => covers(&self.capacity, need) && need.nodes <= self.capacity.nodes,
        }
    }

    /// The node could take it now.
    pub fn fits(&self, need: &Resources) -> bool {
        self.can_ever_fit(need)
            && match self.strategy {
                Strategy::Slots(_) => self.free_slots > 0,
                Strategy::Resources => covers(&self.free, need),
            }
    }

    /// Takes it, or nothing.
    pub fn reserve(&mut self, need: &Resources) -> Option<Reservation> {
        if !self.fits(need) {
            return None;
        }
        if let Strategy::Slots(_) = self.strategy {
            self.free_slots -= 1;
            return Some(Reservation { amounts: Resources::default(), slots: 1, devices: Vec::new() });
        }
        let amounts = Resources {
            cpus: need.cpus.max(0),
            memory_bytes: need.memory_bytes.max(0),
            gpus: need.gpus.max(0),
            nodes: 0,
        };
        let kept = self.free_devices.len() - usize::try_from(amounts.gpus).unwrap_or(0);
        let mut devices = self.free_devices.split_off(kept);
        devices.reverse();
        self.free.cpus -= amounts.cpus;
        self.free.memory_bytes -= amounts.memory_bytes;
        self.free.gpus -= amounts.gpus;
        Some(Reservation { amounts, slots: 0, devices })
    }

    /// Takes exactly these devices besides the amounts, for a job that already runs with them. What is no longer there is
    /// left out, and amounts are taken only as far as they are free: the job runs, whatever the ledger says.
    pub fn adopt(&mut self, need: &Resources, devices: &[String]) -> Reservation {
        if let Strategy::Slots(_) = self.strategy {
            let slots = u32::from(self.free_slots > 0);
            self.free_slots -= slots;
            return Reservation { amounts: Resources::default(), slots, devices: Vec::new() };
        }
        let taken: Vec<usize> = (0..self.devices.len())
            .filter(|&at| devices.contains(&self.devices[at]) && self.free_devices.contains(&at))
            .collect();
        self.free_devices.retain(|at| !taken.contains(at));
        let amounts = Resources {
            cpus: need.cpus.clamp(0, self.free.cpus),
            memory_bytes: need.memory_bytes.clamp(0, self.free.memory_bytes),
            gpus: i64::try_from(taken.len()).unwrap_or(0),
            nodes: 0,
        };
        self.free.cpus -= amounts.cpus;
        self.free.memory_bytes -= amounts.memory_bytes;
        self.free.gpus -= amounts.gpus;
        Reservation { amounts, slots: 0, devices: taken }
    }

    /// Gives back what was taken.
    pub fn release(&mut self, reservation: Reservation) {
        self.free.cpus += reservation.amounts.cpus;
        self.free.memory_bytes += reservation.amounts.memory_bytes;
        self.free.gpus += reservation.amounts.gpus;
        self.free_slots = self.free_slots.saturating_add(reservation.slots);
        self.free_devices.extend(reservation.devices);
        self.free_devices.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The devices of a reservation, by name.
    pub fn device_names(&self, reservation: &Reservation) -> Vec<String> {
        reservation.devices.iter().filter_map(|&at| self.devices.get(at).cloned()).collect()
    }
}

fn covers(have: &Resources, need: &Resources) -> bool {
    need.cpus <= have.cpus && need.memory_bytes <= have.memory_bytes && need.gpus <= have.gpus
}
