//! The dependencies between the jobs of a workflow.

/// The dependencies of each job in both directions.
#[derive(Default)]
pub(super) struct Edges {
    parents: EdgeList,
    children: EdgeList,
}

/// Edges as two flat arrays: those of job n are `targets[offsets[n]..offsets[n + 1]]`.
#[derive(Default)]
struct EdgeList {
    offsets: Vec<u32>,
    targets: Vec<u32>,
}

impl EdgeList {
    fn of(&self, job: u32) -> &[u32] {
        let job = job as usize;
        &self.targets[self.offsets[job] as usize..self.offsets[job + 1] as usize]
    }

    fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Returns the same edges in the opposite direction.
    fn reversed(&self) -> Self {
        let mut offsets = vec![0u32; self.len() + 1];
        for target in &self.targets {
            offsets[*target as usize + 1] += 1;
        }
        for job in 1..offsets.len() {
            offsets[job] += offsets[job - 1];
        }
        let mut next = offsets.clone();
        let mut targets = vec![0u32; self.targets.len()];
        for job in 0..self.len() as u32 {
            for target in self.of(job) {
                targets[next[*target as usize] as usize] = job;
                next[*target as usize] += 1;
            }
        }
        Self { offsets, targets }
    }
}

impl Edges {
    /// Builds the edges from the parents of each job.
    pub fn new<P: IntoIterator<Item = u32>>(parents: impl Iterator<Item = P>, jobs: usize, edges: usize) -> Self {
        let mut offsets = Vec::with_capacity(jobs + 1);
        offsets.push(0);
        let mut built =
            Self { parents: EdgeList { offsets, targets: Vec::with_capacity(edges) }, children: EdgeList::default() };
        built.append(parents);
        built
    }

    /// Adds jobs after the last one, with the parents of each.
    pub fn append<P: IntoIterator<Item = u32>>(&mut self, parents: impl Iterator<Item = P>) {
        for of_job in parents {
            self.parents.targets.extend(of_job);
            self.parents.offsets.push(self.parents.targets.len() as u32);
        }
        self.children = self.parents.reversed();
    }

    pub fn parents(&self, job: u32) -> &[u32] {
        self.parents.of(job)
    }

    pub fn children(&self, job: u32) -> &[u32] {
        self.children.of(job)
    }

    /// Returns, for each job, whether it is one of `jobs` or depends on one of them, directly or not.
    pub fn descendants(&self, jobs: impl IntoIterator<Item = u32>) -> Vec<bool> {
        let mut reached = vec![false; self.parents.len()];
        let mut open: Vec<u32> = jobs.into_iter().collect();
        for job in &open {
            reached[*job as usize] = true;
        }
        while let Some(job) = open.pop() {
            for child in self.children(job) {
                if !std::mem::replace(&mut reached[*child as usize], true) {
                    open.push(*child);
                }
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_jobs_are_children_of_earlier_ones() {
        let mut edges = Edges::new([vec![], vec![0], vec![0, 1]].into_iter(), 3, 3);
        assert_eq!((edges.parents(2), edges.children(0)), (&[0, 1][..], &[1, 2][..]));
        edges.append([vec![1]].into_iter());
        assert_eq!((edges.parents(3), edges.children(1)), (&[1][..], &[2, 3][..]));
        assert_eq!(edges.descendants([1]), [false, true, true, true]);
    }
}
