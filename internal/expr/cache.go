// SPDX-License-Identifier: Apache-2.0

package expr

import "sync"

const (
	maxCached = 1024    // compiled expressions of a class: 7 to 16 KiB each but for the costly ones
	maxWeight = 4 << 20 // of those of a class together, by program.weight: each takes some 4 bytes
	// generations have all of that together.
	generations = 2

	cheap    = 500  // weight below which an expression is compiled in some 0.1 ms
	ordinary = 2500 // and in some 2 ms
	classes  = 3
)

// cache has the compiled expressions that were used lately, in classes by what it takes to compile
// them. Whoever floods it with what costs nearly nothing, as constants of 1,000 characters do, has
// nobody's forgotten that cost more. To have all of a class forgotten takes him a fifth at least of
// what it takes all others to compile theirs again, and these use the most of theirs meanwhile.
type cache struct {
	mu      sync.Mutex
	classes [classes]class
}

// class is a part of the cache.
type class struct {
	programs map[source]*program // those that were used lately
	before   map[source]*program // others
	weight   int                 // of programs
}

// weight is what it takes to compile a program again. Of that the characters are next to nothing: a
// constant is read in one go.
func (p *program) weight() int {
	return max(costToCompile+costPerNode, p.cost-len(p.text)/charactersPerCost)
}

func (p *program) class() int {
	switch w := p.weight(); {
	case w < cheap:
		return 0
	case w < ordinary:
		return 1
	default:
		return 2
	}
}

func (c *cache) cached(src source) *program {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.classes {
		if p := c.classes[i].get(src); p != nil {
			return p
		}
	}
	return nil
}

func (c *cache) keep(src source, p *program) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.classes[p.class()].put(src, p)
}

func (c *class) get(src source) *program {
	if p := c.programs[src]; p != nil {
		return p
	}
	p := c.before[src]
	if p != nil {
		c.put(src, p)
	}
	return p
}

// put forgets what was not used for as long as it took to fill a generation: whoever floods the
// cache with expressions does not take away those that others use all the time.
func (c *class) put(src source, p *program) {
	if len(c.programs) >= maxCached/generations || c.weight+p.weight() > maxWeight/generations {
		c.before, c.programs, c.weight = c.programs, nil, 0
	}
	if c.programs == nil {
		c.programs = map[source]*program{}
	}
	if c.programs[src] == nil { // two may have compiled it at the same time
		c.weight += p.weight()
	}
	c.programs[src] = p
}
